"""The last sentence of a report."""

from __future__ import annotations

from fsdplint.verify.report.ending import errors
from fsdplint.verify.report.figures import ranks
from fsdplint.verify.verdict import Status, Verdict, Verification


def summary(verification: Verification) -> str:
    """What is violated, or why nothing can be said; how much was judged; the exit code."""
    return f"{_result(verification)} (exit {verification.exit_code})"


def _result(verification: Verification) -> str:
    counts = {s: sum(v.status is s for v in verification.verdicts) for s in Status}
    rest = {s: f"{number} {s.value}" for s, number in counts.items() if number}
    if verification.violated:
        del rest[Status.VIOLATED]
        named = ", ".join(map(_named, verification.violated))
        return "; ".join([f"Violated: {named}", *([", ".join(rest.values())] if rest else [])])
    if verification.failure:
        return f"The script did not come to its end: {reason(verification)}"
    if not counts[Status.CONFIRMED]:
        return "Nothing is violated, and nothing confirmed"
    return f"Nothing is violated: {', '.join(rest.values())}"


def _named(verdict: Verdict) -> str:
    return f"{verdict.clause} ({verdict.places[0]})" if verdict.places else verdict.clause


def reason(verification: Verification) -> str:
    """Why a run did not come to its end, in one line."""
    found = errors(verification.ranks)
    if found:
        return f"{ranks(found[0].ranks)}: {found[0].line}"
    return (verification.failure.strip().splitlines() or [""])[0]
