"""Which real bugs of public repositories `fsdplint check` finds, and no longer after their fix.

The table names each bug's repository, the commit that has it and the one that repairs it. Both are
taken from a clone and checked with the preview rules. Exits 1 if less than 75 % of the bugs that a
rule covers are found, if one is still found at the fix, or if a commit could not be examined.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.corpus import Found, examine
from benchmarks.replay.clones import clone, files_of
from benchmarks.replay.table import Bug, Replayed, read, replayed, report

GOAL = 0.75
TABLE = Path(__file__).with_name("bugs.csv")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path, help="a folder for clones, each as owner+name")
    parser.add_argument("--table", type=Path, default=TABLE, help="the bugs (default: ours)")
    parser.add_argument("--origin", default="https://github.com/", help="where to clone from")
    parser.add_argument("--repository", default="", help="only repositories named like this")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a commit")
    args = parser.parse_args(arguments)
    bugs = [bug for bug in read(args.table) if args.repository in bug.repo]
    found = _examined(bugs, args)
    judged = [replayed(bug, found.get((bug.repo, bug.buggy)), _after(bug, found)) for bug in bugs]
    print(report(judged))
    return 0 if None not in found.values() and passed(judged) else 1


def _after(bug: Bug, found: Mapping[tuple[str, str], list[Found] | None]) -> list[Found]:
    return found.get((bug.repo, bug.fixed)) or []


def passed(judged: Sequence[Replayed]) -> bool:
    covered = [each for each in judged if each.bug.rules]
    enough = sum(bool(each.found) for each in covered) >= GOAL * len(covered)
    return enough and not any(each.stale for each in judged)


def _examined(
    bugs: Sequence[Bug], args: argparse.Namespace
) -> dict[tuple[str, str], list[Found] | None]:
    """The findings at each commit of a bug that a rule means; None where none are to be had."""
    covered = [bug for bug in bugs if bug.rules]
    commits = dict.fromkeys((bug.repo, each) for bug in covered for each in bug.commits)

    def one(wanted: tuple[str, str]) -> list[Found] | None:
        repo, commit = wanted
        place = clone(args.clones, repo, args.origin)
        with tempfile.TemporaryDirectory() as folder:
            there = place is not None and files_of(place, commit, Path(folder))
            found = examine(Path(folder), args.limit, preview=True) if there else None
        said = "not examined" if found is None else f"{len(found)} findings"
        print(f"{repo} {commit}: {said}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(args.jobs) as pool:
        return dict(zip(commits, pool.map(one, commits), strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
