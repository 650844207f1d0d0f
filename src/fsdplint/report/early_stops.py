"""Where the analysis stopped early, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fsdplint.early_stop import TOP_LEVEL, EarlyStop
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.places import shown

# Beyond, a list would hide the report.
_MAX_LINES = 5


def lines(outcome: Outcome) -> Iterator[str]:
    """A line for each program in which findings may be missing; of many, for the first ones."""
    programs = [
        tuple(stops) for _, stops in groupby(outcome.partly, key=lambda s: (s.path, s.entry))
    ]
    few = len(programs) <= _MAX_LINES
    listed = programs if few else programs[: _MAX_LINES - 1]
    for stops in listed:
        yield sentence(outcome, stops)
    if not few:
        yield (
            f"analysis of {len(programs) - len(listed)} more programs stopped early "
            "(--output-format json lists them): findings may be missing"
        )


def sentence(outcome: Outcome, stops: Sequence[EarlyStop]) -> str:
    """That the analysis of one program stopped early, and why."""
    first = stops[0]
    name = "" if first.entry == TOP_LEVEL else f":{printable(first.entry)}"
    reasons = "; ".join(printable(stop.reason) for stop in stops)
    where = f"{shown(outcome, first.path)}{name}"
    return f"analysis of `{where}` stopped early ({reasons}): findings may be missing"
