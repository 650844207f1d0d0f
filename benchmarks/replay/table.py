"""The table of bugs, and what findings before and after a fix say of them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import NEAR, Found

# What is missing is missing in the whole file.
ABSENT = ("process-group-not-destroyed", "epoch-not-set")


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that somebody had.

    Attributes:
        repo: "owner/name".
        buggy: a commit that has it.
        fixed: the commit that repairs it, "" if none is known.
        path: relative to the repository.
        lines: where it can be seen at ``buggy``; in a notebook of its concatenated code cells.
        rules: those of ours that mean it, none if no rule does.
        kind: what kind of mistake it is.
        about: what is wrong.
    """

    repo: str
    buggy: str
    fixed: str
    path: str
    lines: tuple[int, ...]
    rules: tuple[str, ...]
    kind: str
    about: str

    @property
    def commits(self) -> tuple[str, ...]:
        return tuple(each for each in (self.buggy, self.fixed) if each)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A bug, the findings that speak of it, and those that still do at its fix."""

    bug: Bug
    found: tuple[Found, ...]
    stale: tuple[Found, ...]


def read(file: Path) -> list[Bug]:
    """The bugs in a table whose columns are called like the attributes of `Bug`."""
    with file.open(encoding="utf-8", newline="") as table:
        return [
            Bug(
                **{
                    **row,
                    "lines": tuple(map(int, row["lines"].split())),
                    "rules": tuple(row["rules"].split()),
                }  # type: ignore[arg-type]  # the others are text
            )
            for row in csv.DictReader(table)
        ]


def replayed(bug: Bug, before: Sequence[Found] | None, after: Sequence[Found]) -> Replayed:
    """What the findings at both commits say of a bug.

    A finding is still there if one of its rule has the same text in the same file after the fix.
    """
    found = tuple(each for each in before or () if _speaks_of(each, bug))
    told = {(each.rule, each.places[0][0], each.text) for each in found}
    stale = tuple(each for each in after if (each.rule, each.places[0][0], each.text) in told)
    return Replayed(bug, found, stale)


def _speaks_of(found: Found, bug: Bug) -> bool:
    return found.rule in bug.rules and any(
        path == bug.path
        and (found.rule in ABSENT or any(first - NEAR <= line <= last + NEAR for line in bug.lines))
        for path, first, last in found.places
    )


def report(judged: Sequence[Replayed]) -> str:
    """A table by kind, then each miss, each bug that no rule covers, and what is still found."""
    bugs = Counter(each.bug.kind for each in judged)
    covered = Counter(each.bug.kind for each in judged if each.bug.rules)
    found = Counter(each.bug.kind for each in judged if each.found)
    lines = [f"{'kind':44}{'bugs':>6}{'with a rule':>13}{'found':>7}"]
    lines += [f"{kind:44}{bugs[kind]:6}{covered[kind]:13}{found[kind]:7}" for kind in sorted(bugs)]
    share = f"{100 * found.total() / (covered.total() or 1):.0f} % of those with a rule"
    total = f"{'all':44}{bugs.total():6}{covered.total():13}{found.total():7}  {share}"
    parts = {
        "missed": [each.bug for each in judged if each.bug.rules and not each.found],
        "no rule": [each.bug for each in judged if not each.bug.rules],
        "still found at the fix": [each.bug for each in judged if each.stale],
    }
    for title, some in parts.items():
        lines += ["", f"{title} ({len(some)})", *(f"  {_said(bug)}" for bug in some)]
    return "\n".join([lines[0], *lines[1 : len(bugs) + 1], total, *lines[len(bugs) + 1 :]])


def _said(bug: Bug) -> str:
    at = " ".join(map(str, bug.lines))
    return f"{bug.repo} {bug.buggy[:10]} {bug.path}:{at} {' '.join(bug.rules)}: {bug.about}"
