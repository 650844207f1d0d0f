"""What a run found, as a value that reports turn into text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fsdplint.finding import Finding
from fsdplint.source import SourceError, SourceFile


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run.

    Attributes:
        findings: ordered by path, place and code.
        sources: every file that a span may lie in, by its path.
        checked: how many of the files asked for were looked at.
        failures: files that were not looked at, or not wholly, each with the reason.
        base: the directory that paths are shown relative to.
        unparsed: how many files of a large tree were not parsed, since they have no sharding.
        rules: the names of the rules that were run.
        root: the directory of the repository that ``base`` lies in, else ``base``.
        partly: functions and files, by path and name, that a budget kept from being followed whole.
        known: how many findings are left out, since they are in the baseline.
    """

    findings: tuple[Finding, ...]
    sources: Mapping[str, SourceFile]
    checked: int
    failures: tuple[SourceError, ...] = ()
    base: str = "/"
    partly: tuple[tuple[str, str], ...] = ()
    unparsed: int = 0
    known: int = 0
    rules: frozenset[str] = frozenset()
    root: str = ""

    def __post_init__(self) -> None:
        if not self.root:
            object.__setattr__(self, "root", self.base)


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of runs in the same directory, on files of which each run had its own."""
    first, *others = outcomes
    if not others:
        return first
    findings = {finding for outcome in outcomes for finding in outcome.findings}
    failures = {(e.path, e.reason): e for outcome in outcomes for e in outcome.failures}
    return replace(
        first,
        findings=tuple(sorted(findings, key=lambda f: (f.span, f.code, f.message))),
        sources={path: s for outcome in outcomes for path, s in outcome.sources.items()},
        checked=sum(outcome.checked for outcome in outcomes),
        failures=tuple(failures.values()),
        partly=tuple(sorted({name for outcome in outcomes for name in outcome.partly})),
        unparsed=sum(outcome.unparsed for outcome in outcomes),
        known=sum(outcome.known for outcome in outcomes),
        rules=frozenset().union(*(outcome.rules for outcome in outcomes)),
    )


# The outcome with other files, by path, in the place of those on disk.
Recheck = Callable[[Mapping[str, SourceFile]], Outcome]


@dataclass(frozen=True, slots=True)
class Changes:
    """What fixing comes to; nothing is written yet.

    Attributes:
        outcome: what is left to find in the fixed files.
        files: each changed file as it was and as it becomes.
        fixed: the findings that the fixes cure, as they stood.
        notes: the path and one line for each fix that was given up.
    """

    outcome: Outcome
    files: tuple[tuple[SourceFile, SourceFile], ...]
    fixed: tuple[Finding, ...]
    notes: tuple[tuple[str, str], ...] = ()
