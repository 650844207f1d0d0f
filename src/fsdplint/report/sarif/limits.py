"""What GitHub takes of a run; it rejects a file with more.

Source: GitHub's "SARIF results exceed one or more limits". Of a result's locations it shows a
hundred, and more of them explain nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsdplint.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class Limits:
    """The most results of a run, locations of a result, and bytes of a file that is gzipped."""

    results: int = 25_000
    locations: int = 100
    size: int = 10_000_000


LIMITS = Limits()
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def most_severe(findings: Sequence[Finding], count: int) -> list[int]:
    """Which of ``findings`` are the ``count`` most severe, in their order."""
    by_severity = sorted(range(len(findings)), key=lambda i: _ORDER.index(findings[i].severity))
    return sorted(by_severity[:count])


def with_evidence(finding: Finding, count: int) -> Finding:
    """``finding`` with the first ``count`` places of its evidence."""
    if len(finding.evidence) <= count:
        return finding
    return replace(finding, evidence=finding.evidence[:count])


def gzipped_size(text: str) -> int:
    """How many bytes GitHub's uploader makes of ``text``, or about as many."""
    return len(zlib.compress(text.encode()))
