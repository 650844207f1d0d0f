"""The result of a run, as a value that reports turn into text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile
from fsdplint.finding import EarlyStop, Finding


class State(Enum):
    """How the check of a file ended.

    Attributes:
        CHECKED: the rules saw it as part of a program that shards.
        IRRELEVANT: it is not part of a program that shards, so no rule can find anything in it.
        SKIPPED: it was left out on purpose.
        FAILED: it could not be checked, or not completely.
    """

    CHECKED = "checked"
    IRRELEVANT = "irrelevant"
    SKIPPED = "skipped"
    FAILED = "failed"


_BY_WEIGHT = (State.IRRELEVANT, State.CHECKED, State.SKIPPED, State.FAILED)


class OutdatedError(Exception):
    """Nobody waits any more for what is being computed."""


def never() -> bool:
    """Return False: the caller waits until all is done."""
    return False


@dataclass(frozen=True, slots=True)
class Account:
    """How the check of one file ended; ``reason`` is one line, empty for a checked file."""

    path: str
    state: State
    reason: str = ""


def united(accounts: Iterable[Account]) -> tuple[Account, ...]:
    """Return one account for each file, by path; of several the one with the gravest state."""
    known: dict[str, Account] = {}
    for account in accounts:
        other = known.setdefault(account.path, account)
        known[account.path] = max(other, account, key=lambda a: _BY_WEIGHT.index(a.state))
    return tuple(known[path] for path in sorted(known))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run.

    Attributes:
        findings: ordered by path, place and code.
        sources: every file that a span may be in, by its path.
        failures: what could not be checked, or not completely, each with the reason.
        base: the directory that paths are shown relative to.
        rules: the names of the rules that were run.
        root: the root of the repository that ``base`` is in, else ``base``.
        partly: where the analysis stopped early, so that findings may be missing.
        accounts: how the check of each file ended, by path.
        known: how many findings are left out, since they are in the baseline.
        linked: files with findings that a symbolic link takes out of the project: none is written.
    """

    findings: tuple[Finding, ...]
    sources: Mapping[str, SourceFile]
    failures: tuple[SourceError, ...] = ()
    base: str = "/"
    partly: tuple[EarlyStop, ...] = ()
    accounts: tuple[Account, ...] = ()
    known: int = 0
    linked: frozenset[str] = frozenset()
    rules: frozenset[str] = frozenset()
    root: str = ""

    def __post_init__(self) -> None:
        if not self.root:
            object.__setattr__(self, "root", self.base)

    def ended(self, *states: State) -> list[Account]:
        """Return the accounts of the files in one of ``states``."""
        return [account for account in self.accounts if account.state in states]

    @property
    def checked(self) -> int:
        """How many files were checked, including those without sharding."""
        return len(self.ended(State.CHECKED, State.IRRELEVANT))


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome for several runs in one directory on different files."""
    first, *others = outcomes
    if not others:
        return first
    findings = {finding for outcome in outcomes for finding in outcome.findings}
    failures = {(e.path, e.reason): e for outcome in outcomes for e in outcome.failures}
    return replace(
        first,
        findings=tuple(sorted(findings, key=lambda f: (f.span, f.code, f.message))),
        sources={path: s for outcome in outcomes for path, s in outcome.sources.items()},
        failures=tuple(failures.values()),
        partly=tuple(sorted({stop for outcome in outcomes for stop in outcome.partly})),
        accounts=united(account for outcome in outcomes for account in outcome.accounts),
        known=sum(outcome.known for outcome in outcomes),
        linked=frozenset().union(*(outcome.linked for outcome in outcomes)),
        rules=frozenset().union(*(outcome.rules for outcome in outcomes)),
    )


# Checks again, reading the files given by path instead of those on disk.
Recheck = Callable[[Mapping[str, SourceFile]], Outcome]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of fixes; nothing is written yet.

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
