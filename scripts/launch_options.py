"""Write which options torchrun and `accelerate launch` know, as their parsers show.

python scripts/launch_options.py WHEELS

WHEELS is a folder of accelerate's wheels (`pip download --no-deps accelerate==…`), one for each
minor release. The table `src/fsdplint/knowledge/launch_options.csv` has a row for each option of
the installed torch, and for each that one of the wheels' or the installed accelerate knows. A test
compares the rows for what is installed.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src/fsdplint/knowledge/launch_options.csv"
HEADER = ("launcher", "option", "takes_value")
_SHOW = "import json, launch_options as o; print(json.dumps([*o.of_accelerate()]))"

Row = tuple[str, str, str]


def main(wheels: Path) -> None:
    """Write the table."""
    rows = {*of_torch(), *of_accelerate()}
    for wheel in sorted(wheels.glob("accelerate-*.whl")):
        rows |= _of_wheel(wheel)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *sorted(rows)])


def of_torch() -> Iterator[Row]:
    """Yield the options of the installed torch's launchers."""
    from torch.distributed import launch, run

    parsers: list[argparse.ArgumentParser] = []
    parse = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = lambda self, *_: parsers.append(self)
    try:
        launch.parse_args([])
    finally:
        argparse.ArgumentParser.parse_args = parse
    yield from _of_parser("torchrun", run.get_args_parser())
    yield from _of_parser("launch", parsers[0])


def of_accelerate() -> Iterator[Row]:
    """Yield the options of `accelerate launch` of the accelerate that is imported."""
    from accelerate.commands.launch import launch_command_parser

    yield from _of_parser("accelerate", launch_command_parser())


def _of_parser(launcher: str, parser: argparse.ArgumentParser) -> Iterator[Row]:
    for action in parser._actions:
        values = {None: "1", 0: "0"}.get(action.nargs, str(action.nargs))
        for option in action.option_strings:
            yield launcher, option, values


def _of_wheel(wheel: Path) -> set[Row]:
    path = [str(wheel), str(Path(__file__).parent)]
    code = f"import sys; sys.path[:0] = {path!r}\n{_SHOW}"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if shown.returncode:
        raise SystemExit(f"{wheel.name}: {shown.stderr}")
    return {(launcher, option, values) for launcher, option, values in json.loads(shown.stdout)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
