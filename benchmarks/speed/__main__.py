"""fsdplint beside ruff, flake8, Fixit, TorchFix and two floors, on pinned public packages.

Everything is run once unmeasured, then in rounds, one tool after the other, so that a busy machine
slows all alike; a figure is the median of the rounds, a ratio the median of the ratios in one
round. Files come from the page cache. The slow tools run once. The output is Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks.speed import goals
from benchmarks.speed.measure import Cost, cost_of
from benchmarks.speed.packages import fetched, pinned
from benchmarks.speed.table import Measured, table
from benchmarks.speed.tools import REQUIREMENTS, Tool, checkers, environments, floors, others, ruff

# TorchFix and Fixit take minutes on each, and an hour on larger ones.
_SMALL = ("accelerate", "torchtitan")


def measured(name: str, package: Path, venvs: Path, rounds: int, limit: float) -> Measured:
    """The costs of every tool on a package; the slow ones run if there is a limit in seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        needed = _needed(package, folder)
        fast = [
            *checkers(package, max(map(Path, needed), key=lambda path: path.stat().st_size)),
            *(ruff(venvs, package, warm=warm) for warm in (False, True)),
            *floors(package, folder / "needed.txt"),
        ]
        costs: dict[str, list[Cost]] = {tool.name: [] for tool in fast}
        for tool in fast:
            _run(tool, folder)
        for _ in range(rounds):
            for tool in fast:
                costs[tool.name].append(_run(tool, folder))
        for tool in others(venvs, package) if limit else ():
            costs[tool.name] = [cost_of(tool.command, folder, limit=limit)]
    return Measured(name, f"{package.name}: {_size(package, needed)}", costs)


def _needed(package: Path, folder: Path) -> list[str]:
    """The files that fsdplint says it checked, which are written to a list as well."""
    options = ("--isolated", "--output-format", "json", str(package))
    command = (sys.executable, "-m", "fsdplint", "check", *options)
    variables = {**os.environ, "FSDPLINT_CACHE_DIR": str(folder / "first")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    files = [file for file in json.loads(done.stdout)["files"] if file["state"] == "checked"]
    paths = [str(folder / file["path"]) for file in files]
    (folder / "needed.txt").write_text("\n".join(paths))
    return paths


def _run(tool: Tool, folder: Path) -> Cost:
    """One run; the cache of a warm one was filled by the first, which is not measured."""
    if not tool.cache:
        return cost_of(tool.command, folder)
    cache = folder / tool.name
    if not tool.warm:
        shutil.rmtree(cache, ignore_errors=True)
    with _changed(tool.changed):
        return cost_of(tool.command, folder, {tool.cache: str(cache)})


@contextmanager
def _changed(path: Path | None) -> Iterator[None]:
    """A line more in the file at ``path``, another one each time."""
    if path is None:
        yield
        return
    before = path.read_bytes()
    path.write_bytes(before + f"\n# {time.time_ns()}\n".encode())
    try:
        yield
    finally:
        path.write_bytes(before)


def _size(package: Path, needed: Sequence[str]) -> str:
    every = [path.stat().st_size for path in package.rglob("*.py")]
    checked = [Path(path).stat().st_size for path in needed]
    return (
        f"{len(every)} files, {sum(every) / 1e6:.1f} MB; "
        f"checked {len(checked)}, {sum(checked) / 1e6:.1f} MB"
    )


def about() -> Iterator[str]:
    """The day, the machine and the versions."""
    model = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    cpu = model[0].partition(": ")[2] if model else platform.processor()
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    tools = ", ".join(pin.replace("==", " ") for pins in REQUIREMENTS.values() for pin in pins)
    yield f"{date.today()}; {cpu}, {os.cpu_count()} cores, load {load}"
    yield f"Python {platform.python_version()}, libcst {version('libcst')}, {tools}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    every = (*pinned(), "torch")
    parser.add_argument("--packages", nargs="+", choices=every, default=every, metavar="NAME")
    parser.add_argument("--slow", nargs="*", choices=every, default=_SMALL, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=900, help="seconds for one slow run")
    default = Path(tempfile.gettempdir(), "fsdplint-speed")
    parser.add_argument("--folder", type=Path, default=default, help="packages and environments")
    args = parser.parse_args()
    environments(args.folder / "venvs", set(REQUIREMENTS))
    packages = fetched(args.folder / "packages", args.packages)
    print("\n".join(about()), flush=True)
    for name, package in packages.items():
        limit = args.limit if name in args.slow else 0
        found = measured(name, package, args.folder / "venvs", args.rounds, limit)
        print("", *table(found, goals.RUFF, goals.PARSE), sep="\n")
        print("", *(f"- {line}" for line in goals.verdicts(found)), sep="\n", flush=True)
    print("", *about(), sep="\n")


if __name__ == "__main__":
    main()
