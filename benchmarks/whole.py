"""Which programs of whole repositories `fsdplint check` does not follow to their end.

Each repository is checked by a process of its own, without a cache and with the preview rules. A
program that was stopped early counts unless it is a test. Exits 1 if one was.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.speed.measure import cost_of
from fsdplint.engine.project.project import Project


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", type=Path, help="folders to check")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a repository")
    args = parser.parse_args(arguments)
    print("| repository | files | findings | stopped early | of these, by reason | CPU s |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    stopped = [_row(folder.resolve(), args.limit) for folder in args.repositories]
    return 1 if any(stopped) else 0


def _row(folder: Path, limit: float) -> int:
    """Prints the line of a repository; returns how many programs were stopped early."""
    found, cpu = _checked(folder, limit)
    if found is None:
        print(f"| {folder.name} | | | | not done in {limit:.0f} s | {cpu:.0f} |", flush=True)
        return 1
    project = Project(folder, lambda _: None)
    stops = [e for e in found["partly"] if not project.is_test(f"{folder.as_posix()}/{e['path']}")]
    reasons = Counter(each["reason"] for each in stops)
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    programs = len({(each["path"], each["name"]) for each in stops})
    sizes = f"{len(found['files'])} | {len(found['findings'])} | {programs}"
    print(f"| {folder.name} | {sizes} | {told} | {cpu:.0f} |", flush=True)
    return programs


def _checked(folder: Path, limit: float) -> tuple[dict[str, Any] | None, float]:
    """What a check of a folder writes, None if it takes too long; and its CPU seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        options = ("--isolated", "--no-cache", "--preview", "--pedantic", "--output-format", "json")
        command = (
            sys.executable,
            "-m",
            "fsdplint",
            "check",
            *options,
            "--output-file",
            str(report),
        )
        cost = cost_of((*command, "."), folder, limit=limit)
        return (json.loads(report.read_text()) if cost.ended else None), cost.cpu


if __name__ == "__main__":
    sys.exit(main())
