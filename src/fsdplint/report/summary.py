"""The last line of a report."""

from __future__ import annotations

from fsdplint.finding import Safety
from fsdplint.outcome import Outcome


def summary(outcome: Outcome) -> str:
    """How much was found, how much of it can be fixed and how, and what was not looked at."""
    found = _found(outcome) if outcome.findings else f"No findings in {_count(outcome.checked)}"
    unread = len({failure.path for failure in outcome.failures})
    missed = f"; {_count(unread)} could not be checked" if unread else ""
    aside = ""
    if outcome.unparsed:
        aside = f"; {_count(outcome.unparsed)} without sharding not parsed"
    known = f"; {outcome.known} more in the baseline" if outcome.known else ""
    return f"{found}{known}{missed}{_partly(outcome)}{aside}."


def _partly(outcome: Outcome) -> str:
    count = len(outcome.partly)
    if not count:
        return ""
    programs = "1 program is" if count == 1 else f"{count} programs are"
    return f"; {programs} too long to be followed whole (see fsdplint inspect)"


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
