"""Waits for ranks: until all have ended, one has failed, or none will go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fsdplint.verify import events
from fsdplint.verify.events import Ended
from fsdplint.verify.evidence import Stall
from fsdplint.verify.launch import Launched, rank_pids

INTERVAL = 0.05
GRACE = 3.0
"""Seconds the other ranks have to end by themselves once one of them failed."""


def watch(
    launched: Launched, folder: Path, ranks: int, timeout: float, tell: Callable[[str], None]
) -> Stall | None:
    """Returns when the run is over; a `Stall` where ranks had to be given up.

    Args:
        ranks: how many this node starts.
        timeout: seconds the run may take in all.
        tell: is told in a few words where the run is, now and then.
    """
    began = time.monotonic()
    limit = began + timeout
    while launched.running() and time.monotonic() < limit:
        ended = [e for rank in rank_pids(folder) if (e := _ended(folder, rank))]
        if len(ended) == ranks:
            return None
        if any(e.how in ("crash", "exit", "unmappable") for e in ended):
            limit = min(limit, time.monotonic() + GRACE)
        tell(f"{len(rank_pids(folder))} of {ranks} ranks started, {len(ended)} ended")
        time.sleep(INTERVAL)
    return None if not launched.running() else Stall(False, timeout, {})


def _ended(folder: Path, rank: int) -> Ended | None:
    found = [e for e in events.read(folder / f"{rank}.jsonl") if isinstance(e, Ended)]
    return found[0] if found else None
