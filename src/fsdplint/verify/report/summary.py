"""A verification in a line: what was run, and what came of it."""

from __future__ import annotations

from fsdplint.verify.figures import plural
from fsdplint.verify.report.ending import errors, told
from fsdplint.verify.verdict import CLEAN, Status, Verdict, Verification


def headline(verification: Verification) -> str:
    """What was run, in one line."""
    parts = [
        verification.torch and f"torch {verification.torch}",
        verification.device,
        plural(verification.world_size, "rank"),
        plural(max((rank.steps for rank in verification.ranks), default=0), "step"),
        f"{verification.seconds:.1f} s",
    ]
    return ", ".join(part for part in parts if part)


def summary(verification: Verification) -> str:
    """What is violated, or why nothing can be said; how much was judged; the exit code."""
    return f"{result(verification)} (exit {verification.exit_code})"


def result(verification: Verification) -> str:
    """The same without the exit code."""
    counts = {s: sum(v.status is s for v in verification.verdicts) for s in Status}
    rest = {s: f"{number} {s.value}" for s, number in counts.items() if number}
    if verification.violated:
        del rest[Status.VIOLATED]
        named = ", ".join(map(_named, verification.violated))
        return "; ".join([f"Violated: {named}", *([", ".join(rest.values())] if rest else [])])
    if verification.failure and all(rank.ended in CLEAN for rank in verification.ranks):
        return f"{verification.failure[0].upper()}{verification.failure[1:]}"
    if verification.failure:
        return f"The script did not come to its end: {reason(verification)}"
    if not counts[Status.CONFIRMED]:
        return "Nothing is violated, and nothing confirmed"
    return f"Nothing is violated: {', '.join(rest.values())}"


def _named(verdict: Verdict) -> str:
    return f"{verdict.clause} ({verdict.places[0]})" if verdict.places else verdict.clause


def reason(verification: Verification) -> str:
    """Why a run did not come to its end, in one line."""
    found = errors(verification)
    if found:
        return told(found[0])
    return (verification.failure.strip().splitlines() or [""])[0]
