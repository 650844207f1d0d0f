"""Which ranks failed, the one that failed first leading: the others' errors may be its doing."""

from __future__ import annotations

import math
import signal

from fsdplint.verify.deaths import Death
from fsdplint.verify.events import FAILED
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.messages import LOST

_NOTICED = 0.25
"""Seconds within which a launcher notices that a process is gone."""
_ENDS = (-signal.SIGTERM, -signal.SIGKILL)
"""How torchrun ends the ranks that are left once one has failed."""


def failures(run: Run) -> list[RankRun]:
    """Returns the ranks that failed by themselves: those that lost their connections come behind
    those that have an error of their own, else the earlier one leads; ranks with the same error
    stay in their own order."""
    failed = [rank for rank in run.ranks if _failed(run, rank)]
    earliest: dict[object, tuple[bool, float]] = {}
    for rank in failed:
        earliest[_error(rank)] = min(_order(rank), earliest.get(_error(rank), _order(rank)))
    return sorted(failed, key=lambda rank: earliest[_error(rank)])


def _error(rank: RankRun) -> object:
    if rank.ended is not None:
        return rank.ended.kind, rank.ended.message
    return rank.death and rank.death.status


def stopped(run: Run, rank: RankRun) -> bool:
    """True if the launcher ended the rank since another one had failed."""
    if rank.death is None or rank.death.status not in _ENDS:
        return False
    others = (other.death for other in run.ranks if other is not rank)
    return any(death and _is_cause(death, rank.death) for death in others)


def _is_cause(one: Death, other: Death) -> bool:
    return one.status != 0 and one.time < other.time


def _failed(run: Run, rank: RankRun) -> bool:
    if rank.ended is not None:
        return rank.ended.how in FAILED
    if rank.death is None:  # stopped by verify, or its launcher is gone
        return run.stall is None
    return not stopped(run, rank)


def _order(rank: RankRun) -> tuple[bool, float]:
    if rank.ended is not None:
        return _is_lost(rank.ended.traceback), rank.ended.time
    if rank.death is None:
        return True, math.inf
    # A connection that is lost may abort the process.
    aborted = rank.death.status == -signal.SIGABRT and _is_lost(rank.output)
    return aborted, rank.death.time - _NOTICED


def _is_lost(text: str) -> bool:
    return any(message in text for message in LOST)
