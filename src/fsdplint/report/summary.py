"""The last line of a report."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.account import State
from fsdplint.finding import Safety
from fsdplint.outcome import Outcome


def summary(outcome: Outcome) -> str:
    """How much was found, how much of it can be fixed and how, and what was not looked at."""
    found = _found(outcome) if outcome.findings else _none(outcome)
    known = [f"{outcome.known} more in the baseline"] if outcome.known else []
    return "; ".join([found, *known, *_unchecked(outcome), *_partly(outcome)]) + "."


def _unchecked(outcome: Outcome) -> Iterator[str]:
    """The files that no rule saw, and what is no file of the run."""
    beside = outcome.ended(State.IRRELEVANT) if outcome.findings else []
    elsewhere = {failure.path for failure in outcome.failures}
    elsewhere -= {account.path for account in outcome.accounts}
    counts = (
        (len(beside), "file", "without sharding"),
        (len(outcome.ended(State.SKIPPED)), "file", "skipped"),
        (len(outcome.ended(State.FAILED)), "file", "could not be checked"),
        (len(elsewhere), "path", "could not be checked"),
    )
    return (f"{_count(count, noun)} {what}" for count, noun, what in counts if count)


def _partly(outcome: Outcome) -> Iterator[str]:
    if outcome.partly:
        programs = {(stop.path, stop.entry) for stop in outcome.partly}
        yield f"analysis of {_count(len(programs), 'program')} stopped early"


def _none(outcome: Outcome) -> str:
    irrelevant = len(outcome.ended(State.IRRELEVANT))
    aside = f" ({irrelevant} without sharding)" if irrelevant else ""
    what = "what was analyzed of " if outcome.partly else ""
    return f"No findings in {what}{_count(outcome.checked)}{aside}"


def _found(outcome: Outcome) -> str:
    files = len({finding.span.path for finding in outcome.findings})
    count = len(outcome.findings)
    return f"Found {_count(count, 'finding')} in {_count(files)}{_fixable(outcome)}"


def _fixable(outcome: Outcome) -> str:
    fixes = [finding.fix.safety for finding in outcome.findings if finding.fix]
    safe, unsafe = fixes.count(Safety.SAFE), fixes.count(Safety.UNSAFE)
    if safe and unsafe:
        return f" ({safe} fixable with --fix, {unsafe} more with --fix --unsafe-fixes)"
    if unsafe:
        return f" ({unsafe} fixable with --fix --unsafe-fixes)"
    return f" ({safe} fixable with --fix)" if safe else ""


def _count(number: int, noun: str = "file") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
