"""Wait for ranks until all have ended, one has failed, or they hang.

Ranks hang if what they issued contradicts: then nothing but time to settle is needed.
A rank that computes, loads or compiles may take as long as it likes, until the timeout. If every
rank is idle and one of them waits in a collective, that is reported too, though not as a
contradiction.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.verify import journal, order, stacks
from fsdplint.verify.collective_log import Reader, State
from fsdplint.verify.events import FAILED
from fsdplint.verify.evidence import Stall
from fsdplint.verify.figures import plural
from fsdplint.verify.journal import Tail
from fsdplint.verify.launch import Launched, rank_pids
from fsdplint.verify.processes import cpu_seconds, read_deaths

INTERVAL = 0.05
MOST_OUTPUT = 2**26
"""Bytes of a rank's output on the disk; a script may print without an end."""
GRACE = 3.0
"""Seconds the other ranks have to end by themselves once one of them failed."""
SETTLED = 3.0
"""Seconds without progress after which contradicting collectives that block are reported."""
SETTLED_IF_QUEUED = 8.0
"""The same where collectives are only queued, and the ranks may still compute."""
IDLE = 10.0
"""Seconds without progress and CPU time after which idle ranks are reported."""
_AT_WORK = 3.0
"""Seconds within which a rank that is at work moves, or uses the processor."""
_EFFORT = 0.03
"""Processor seconds in `IDLE` that a process which only waits stays below."""
_QUIET = 1.0
"""Seconds without progress after which a rank is looked at more closely."""
_CLOSER_LOOK = 0.5
"""Seconds between such looks."""
_STARTED, _ENDED = '{"event": "Started"', '{"event": "Ended"'


def watch(
    launched: Launched, folder: Path, ranks: int, timeout: float, progress: Callable[[str], None]
) -> Stall | None:
    """Wait until the run is over; return a `Stall` if ranks had to be stopped.

    Args:
        ranks: how many this node starts.
        timeout: seconds the run may take in all.
        progress: gets a few words on where the run is, now and then.
    """
    watched = _Ranks(folder)
    limit = time.monotonic() + timeout
    while launched.running():
        now = time.monotonic()
        watched.look(now)
        if watched.over == ranks:
            return None
        if watched.failed:
            limit = min(limit, now + GRACE)
        elif watched.quiet_for(now) > _QUIET and now > watched.looked + _CLOSER_LOOK:
            watched.looked = now
            if (certain := watched.contradict(now)) or watched.idle(ranks, now):
                return watched.stall(certain, now)
        if now > limit:
            return watched.stall(False, now, () if watched.failed else watched.working(now))
        progress(watched.summary(ranks))
        time.sleep(INTERVAL)
    return None


@dataclass
class _Rank:
    """What is known of one rank.

    Attributes:
        moved: when it last wrote anything.
        worked: when it was last seen to have used processor time; `used`: how much until then.
        ended: how its script ended, as in `Ended`; empty until then.
        dead: its process is gone.
    """

    pid: int
    ring: Reader
    events: Tail
    output: Path
    moved: float
    worked: float
    used: float = 0.0
    ended: str = ""
    dead: bool = False
    world_size: int = 0

    @property
    def over(self) -> bool:
        return bool(self.ended) or self.dead

    @property
    def waits(self) -> bool:
        """True if it is in a collective."""
        waiting = (State.ISSUED, State.WAITING)
        return any(collective.state in waiting for collective in self.ring.collectives())

    def follow(self, now: float, dead: bool) -> None:
        """Read what it has written since the last time, and note if its process has ended."""
        lines = self.events.lines()
        if self.ring.read() or lines:
            self.moved = now
        if lines and lines[0].startswith(_STARTED):
            self.world_size = json.loads(lines[0])["world_size"]
        if lines and lines[-1].startswith(_ENDED):
            self.ended = json.loads(lines[-1])["how"]
        self.dead = dead
        with suppress(FileNotFoundError):
            if self.output.stat().st_size > MOST_OUTPUT:
                journal.cut(self.output)

    def work(self, used: float, now: float) -> None:
        """Note how much processor time it has used."""
        if not used - self.used < _EFFORT:
            self.worked = now
            self.used = used if math.isfinite(used) else self.used


@dataclass
class _Ranks:
    """The ranks of this node, as far as they have begun."""

    folder: Path
    ranks: dict[int, _Rank] = field(default_factory=dict)
    looked: float = 0.0

    def look(self, now: float) -> None:
        """Read what the ranks have written since the last look."""
        for number, pid in rank_pids(self.folder).items():
            if number not in self.ranks:
                ring = Reader(self.folder / f"{number}.ring")
                written = Tail(self.folder / f"{number}.jsonl")
                output = self.folder / f"{number}.output"
                self.ranks[number] = _Rank(pid, ring, written, output, now, now)
        dead = read_deaths(self.folder)  # first, so that nothing is written behind the last look
        for number, rank in self.ranks.items():
            if not rank.over:
                rank.follow(now, number in dead)

    @property
    def over(self) -> int:
        return sum(rank.over for rank in self.ranks.values())

    @property
    def failed(self) -> bool:
        return any(
            rank.ended in FAILED if rank.ended else rank.dead for rank in self.ranks.values()
        )

    def quiet_for(self, now: float) -> float:
        """Return the longest time in seconds that a running rank has made no progress."""
        return max((now - r.moved for r in self.ranks.values() if not r.over), default=0.0)

    def contradict(self, now: float) -> bool:
        """True if what the ranks issued makes some of them hang."""
        issued = {number: rank.ring.collectives() for number, rank in self.ranks.items()}
        over = [number for number, rank in self.ranks.items() if rank.over]
        parting = order.parting(issued)
        if parting is not None:
            after = SETTLED if order.blocked(parting) else SETTLED_IF_QUEUED
            return self._quiet(parting.issued, after, now)
        blocked, queued = (order.stuck(issued, over, queued) for queued in (False, True))
        return self._quiet(blocked, SETTLED, now) or self._quiet(queued, SETTLED_IF_QUEUED, now)

    def _quiet(self, ranks: Collection[int], seconds: float, now: float) -> bool:
        return bool(ranks) and all(now - self.ranks[r].moved > seconds for r in ranks)

    def idle(self, ranks: int, now: float) -> bool:
        """True if every rank of the whole job is idle, and one is in a collective."""
        if any(rank.world_size != ranks for rank in self.ranks.values()):
            return False
        live = [rank for rank in self.ranks.values() if not rank.over]
        used = cpu_seconds([rank.pid for rank in live])
        for rank in live:
            rank.work(used.get(rank.pid, math.inf), now)
        return all(now - max(rank.moved, rank.worked) > IDLE for rank in live) and any(
            rank.waits for rank in live
        )

    def working(self, now: float) -> tuple[int, ...]:
        """Return the ranks that make progress, without those that wait for them in a collective."""
        live = {number: rank for number, rank in self.ranks.items() if not rank.over}
        active = {n: r for n, r in live.items() if now - max(r.moved, r.worked) < _AT_WORK}
        outside = [number for number, rank in active.items() if not rank.waits]
        moving = [number for number, rank in active.items() if now - rank.moved < _QUIET]
        return tuple(outside or moving)

    def stall(self, certain: bool, now: float, working: tuple[int, ...] = ()) -> Stall:
        """Return a stall, with the stacks of the ranks that are still running."""
        live = {number: rank.pid for number, rank in self.ranks.items() if not rank.over}
        return Stall(certain, self.quiet_for(now), stacks.ask(self.folder, live), working)

    def summary(self, ranks: int) -> str:
        """Describe the progress of the run in a few words."""
        if len(self.ranks) < ranks:
            return f"{len(self.ranks)} of {ranks} ranks started"
        step = min(rank.ring.step for rank in self.ranks.values())
        return f"{plural(ranks, 'rank')}, {plural(step, 'step')} done, {self.over} ended"
