"""Move findings from an older text to the current one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fsdplint.finding import Finding, Span


@dataclass(frozen=True, slots=True)
class Shift:
    """The one range of a text that was replaced: ``start`` to ``end``, and the growth there."""

    start: int
    end: int
    growth: int

    def span(self, span: Span) -> Span | None:
        """Return where ``span`` is now, None if it touches what was replaced."""
        if span.end <= self.start:
            return span
        if span.start >= self.end:
            return replace(span, start=span.start + self.growth, end=span.end + self.growth)
        return None


def between(old: str, new: str) -> Shift:
    """Return the shortest replacement that makes ``new`` of ``old``."""
    head = _common_length(old, new)
    tail = _common_length(old[head:][::-1], new[head:][::-1])
    return Shift(head, len(old) - tail, len(new) - len(old))


def _common_length(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def moved(finding: Finding, shifts: Mapping[str, Shift]) -> Finding | None:
    """Return ``finding`` with its places in the current texts, None if its own place is gone.

    It has no fix, since that was made for the older text.
    """
    if finding.paths.isdisjoint(shifts):
        return finding
    span = _moved(finding.span, shifts)
    if span is None:
        return None
    evidence = tuple(
        replace(each, span=place)
        for each in finding.evidence
        if (place := _moved(each.span, shifts)) is not None
    )
    reason = "the code cannot be parsed as it is now"
    return replace(finding, span=span, evidence=evidence, fix=None, fix_declined=reason)


def _moved(span: Span, shifts: Mapping[str, Shift]) -> Span | None:
    shift = shifts.get(span.path)
    return span if shift is None else shift.span(span)
