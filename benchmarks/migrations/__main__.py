"""Migrate public programs as published, and prove each on ranks:
`python -m benchmarks.migrations CHECKOUTS [--kind KIND] [--name PART]`.

``CHECKOUTS`` holds git repositories as ``owner/name`` or ``owner+name``, which are not changed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchmarks.corpus import checkout
from benchmarks.migrations.programs import Program, load
from benchmarks.migrations.trial import Result, TrialError, export, migrate


def _tried(program: Program, options: argparse.Namespace) -> Result:
    place = checkout(options.checkouts, program.repository)
    if place is None:
        return Result(False, False, ("there is no checkout of the repository",))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.keep is not None:
            folder = options.keep / f"{program.kind} {program.name.replace('/', '+')}"
            folder.mkdir(parents=True)
        try:
            printed, result = migrate(program, export(program, place, folder), options.limit)
        except TrialError as error:
            return Result(False, False, (str(error),))
        (folder / "migrate.out").write_text(printed, "utf-8")
    return result


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.migrations", description=__doc__)
    parser.add_argument("checkouts", type=Path, help="a folder of git repositories")
    parser.add_argument("--kind", default="", help="only this migration")
    parser.add_argument("--name", default="", help="only programs with this in their name")
    parser.add_argument("--steps", help="how many optimizer steps are compared, or all")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a run")
    parser.add_argument("--keep", type=Path, help="keep the programs and the output in this folder")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for program in load():
        if options.kind in ("", program.kind) and options.name in program.name:
            steps = options.steps or program.steps
            result = _tried(replace(program, steps=steps), options)
            counts[program.kind, "programs"] += 1
            counts[program.kind, "complete"] += result.complete
            counts[program.kind, "proven"] += result.proven
            state = "proven" if result.proven else "complete" if result.complete else "refused"
            print(f"{program.kind:7}{state:9}{program.name}: {'; '.join(result.said)}", flush=True)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        figures = (f"{counts[kind, what]} {what}" for what in ("programs", "complete", "proven"))
        print(f"{kind}: {', '.join(figures)}")


if __name__ == "__main__":
    main()
