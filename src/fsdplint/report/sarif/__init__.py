"""Findings as SARIF 2.1.0, as GitHub code scanning and other readers of the format take them.

One run, cut to what GitHub takes with a notification that says so. Suppressed findings are left
out, since GitHub shows them as open, and a file that does not parse is a notification. The same
outcome gives the same bytes. Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

from fsdplint.outcome import Outcome
from fsdplint.report.sarif.limits import LIMITS, Limits, gzipped_size
from fsdplint.report.sarif.log import Log
from fsdplint.report.style import Style

__all__ = ["sarif"]


def sarif(outcome: Outcome, style: Style, limits: Limits = LIMITS) -> str:  # noqa: ARG001 - a Report
    """The log of ``outcome``, with the most severe findings where there are too many."""
    log = Log(outcome, limits)
    count = min(len(log.findings), limits.results)
    text = log.text(count)
    while count and (size := gzipped_size(text)) > limits.size:
        # A tenth is for what does not shrink with the number of results.
        count = min(count - 1, count * limits.size * 9 // (size * 10))
        text = log.text(count)
    return text
