"""The evidence of one run, rank by rank: all that the clauses judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fsdplint.verify import collective_log, journal, stacks
from fsdplint.verify.collective_log import Collective
from fsdplint.verify.events import Ended, Event, Place, Save, Started
from fsdplint.verify.processes import Death
from fsdplint.verify.request import SCRATCH
from fsdplint.verify.saved_files import Stored, look

E = TypeVar("E")


@dataclass(frozen=True)
class RankRun:
    """One rank.

    Attributes:
        output: the end of what it printed.
        death: how its process ended; None where it had to be stopped, or did not end in time.
        fatal: what Python wrote when a signal such as SIGSEGV killed it; empty otherwise.
    """

    rank: int
    events: tuple[Event, ...]
    collectives: tuple[Collective, ...]
    output: str
    death: Death | None = None
    fatal: str = ""

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def first(self, kind: type[E]) -> E | None:
        """Return the first event of a kind, or None."""
        return next(iter(self.of(kind)), None)

    @cached_property
    def ended(self) -> Ended | None:
        """How the script ended here; None if the process died or was stopped."""
        return self.first(Ended)

    @cached_property
    def started(self) -> Started | None:
        """The rank's first event; None if it did not start."""
        return self.first(Started)


@dataclass(frozen=True, slots=True)
class Stall:
    """Ranks that hang or ran out of time.

    Attributes:
        certain: the collectives of the ranks contradict each other; else the run timed out or
            is idle.
        seconds: without any progress, when it was noticed.
        stacks: per rank the lines of its main thread, innermost first.
        working: ranks that were still running at the timeout, while the others waited for them.
    """

    certain: bool
    seconds: float
    stacks: dict[int, tuple[Place, ...]]
    working: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """All ranks of one run on this node.

    Attributes:
        stall: set if the ranks had to be stopped.
        launcher: what the launcher itself printed.
        saved: what the files that were saved hold at the end, by path.
    """

    ranks: tuple[RankRun, ...]
    stall: Stall | None = None
    launcher: str = ""
    seconds: float = 0.0
    saved: dict[str, Stored] = field(default_factory=dict)

    @cached_property
    def started(self) -> Started | None:
        """The first event of the first rank that started."""
        return next((rank.started for rank in self.ranks if rank.started), None)

    @property
    def world_size(self) -> int:
        """Ranks in the whole job, other nodes included."""
        return self.started.world_size if self.started else len(self.ranks)

    def all(self, kind: type[E]) -> list[tuple[int, E]]:
        """Return every rank's events of a kind, with the rank."""
        return [(rank.rank, event) for rank in self.ranks for event in rank.of(kind)]


def gather(
    folder: Path, stall: Stall | None, ends: Mapping[int, Death], launcher: str, seconds: float
) -> Run:
    """Read what the ranks of this node left in the records' folder.

    Args:
        ends: how ranks ended, apart from those that had to be stopped.
    """
    names = sorted(int(file.stem) for file in folder.glob("*.pid"))
    ranks = tuple(_rank(folder, rank, ends.get(rank)) for rank in names)
    paths = {save.path for rank in ranks for save in rank.of(Save) if save.path}
    return Run(ranks, stall, launcher, seconds, look(folder / SCRATCH, paths))


def _rank(folder: Path, rank: int, death: Death | None) -> RankRun:
    output = folder / f"{rank}.output"
    return RankRun(
        rank,
        tuple(journal.read(folder / f"{rank}.jsonl")),
        tuple(collective_log.read(folder / f"{rank}.ring")),
        journal.whole_end(output) if output.exists() else "",
        death,
        stacks.fatal(folder, rank),
    )
