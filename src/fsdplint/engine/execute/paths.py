"""Which paths of an entry to follow: one along the branches that reach sharding, then others.

A path is replayed from the start with the outcomes of its first decisions given, so there is no
state to save and join, and every finding has a path as its witness. Most branches change nothing
that a rule asks about: an entry is left once its paths bring nothing new.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.events import Event, Trace
from fsdplint.engine.execute import state
from fsdplint.engine.execute.decisions import Decision, Decisions
from fsdplint.engine.execute.machine import Entry, Machine
from fsdplint.engine.execute.state import SHARDS, Interest, OutOfBudget
from fsdplint.engine.link import Project

MAX_PATHS = 20
MAX_REPEATS = 6  # paths on which every single outcome was followed before
# Steps of paths in a row with no event at a place that had none before: that many if the next path
# follows for the first time what may cause an event, else fewer.
MAX_DRY = 60_000
MAX_DRY_REST = 15_000
MAX_STEPS = 150_000
MAX_COST = 20_000  # five times a path's
# Of paths none of which shards: in public code the later ones never do either.
MAX_BLIND = 3
MAX_BLIND_STEPS = 30_000  # in public code the first sharding is within 25,000
MAX_BLIND_DRY = 5_000
MAX_BARREN = 1  # paths that are too long, and had not come to sharding when they were cut
MIN_ALLOWED = 5_000  # steps of a path before it shards, where others had to be cut
MAX_CUT = 3  # paths that were cut in one function, which took most of each

# A kind of event, and where it happens.
Place = tuple[type[Event], ir.Node]


@dataclass(slots=True)
class Known:
    """What the paths of all entries so far have shown.

    Attributes:
        reached: functions and classes that ran.
        eventful: functions that ran when an event happened, or a path became too long.
        places: where events happened.
        covered: branches and the outcomes that were followed.
        barren: the paths since the last one that shards that were too long to come to sharding.
        cut: how many of these were cut in a function that took most of them.
    """

    reached: set[ir.Node] = field(default_factory=set)
    eventful: set[ir.Node] = field(default_factory=set)
    places: set[Place] = field(default_factory=set)
    covered: set[tuple[object, bool]] = field(default_factory=set)
    barren: int = 0
    cut: Counter[ir.Function] = field(default_factory=Counter)

    def endless(self) -> frozenset[ir.Function]:
        """The functions that no path found an end of, and none need enter again to be cut."""
        return frozenset(each for each, count in self.cut.items() if count >= MAX_CUT)

    def allowed(self) -> int:
        """The steps in which a path has to come to sharding: fewer where others did not."""
        fewer = max(state.MAX_STEPS // (1 + self.barren), MIN_ALLOWED)
        return min(fewer, state.MAX_STEPS)

    def add(self, machine: Machine, shards: bool) -> bool:
        """Notes a path; returns whether it has an event at a place that had none before."""
        if shards:
            self.barren = 0
            self.cut.clear()
        elif not machine.trace.complete:
            self.barren += 1
            self.cut.update(machine.too_long)
        self.reached |= machine.reached
        self.eventful |= machine.eventful
        places = {(type(event), event.site.node) for event in machine.trace.events}
        fresh = not places <= self.places
        self.places |= places
        return fresh


def paths(
    project: Project, entry: Entry, interest: Interest, known: Known
) -> tuple[list[Trace], int]:
    """The paths of an entry that shard, as preferred and then flipped, and the steps it took."""
    frontier = Frontier(known.covered)
    found: list[Trace] = []
    effort = Effort()
    cut = ""
    prefix: tuple[bool, ...] | None = ()
    project.keys.clear()  # they hold the objects of the paths they are from, and no others ask
    while prefix is not None and not cut:
        machine = _path(project, entry, prefix, interest, known)
        shards = machine.may_have_sharded()
        if shards:
            found.append(machine.trace)
        effort.add(machine, shards, fresh=known.add(machine, shards))
        frontier.add(machine.decisions.made, len(prefix))
        prefix = frontier.next(sharding_seen=bool(found))
        cut = effort.limit_reached(bool(found), frontier.promising)
    if prefix is not None:
        project.exhausted.setdefault((entry.unit.path, entry.name), cut)
    return found, effort.steps


def _path(
    project: Project, entry: Entry, prefix: tuple[bool, ...], interest: Interest, known: Known
) -> Machine:
    """Follows one path; the machine it was followed by holds its trace."""
    trace = Trace(entry.name, entry.unit.path)
    machine = Machine(project, trace, Decisions(prefix), interest)
    machine.allowed, machine.endless = known.allowed(), known.endless()
    try:
        machine.start(entry)
    except (OutOfBudget, RecursionError):
        trace.complete = False
        project.overlong.add((entry.unit.path, entry.name))
        project.exhausted[entry.unit.path, entry.name] = "a path is too long to be followed"
    made = machine.decisions.made
    trace.decisions = [(decision.key, decision.outcome) for decision in made]
    return machine


@dataclass(slots=True)
class Effort:
    """What the paths of an entry took so far.

    Attributes:
        dry: the steps since the last path with an event at a place that had none before.
        barren: the paths that are too long, and had not come to sharding when they were cut.
    """

    paths: int = 0
    steps: int = 0
    cost: float = 0.0
    dry: int = 0
    barren: int = 0

    def add(self, machine: Machine, shards: bool, *, fresh: bool) -> None:
        self.paths += 1
        self.steps += machine.steps
        self.cost += machine.cost
        self.dry = 0 if fresh else self.dry + machine.steps
        self.barren += not shards and not machine.trace.complete

    def limit_reached(self, sharding_seen: bool, promising: bool) -> str:
        """Why no further path is followed, "" if one may be."""
        if not sharding_seen and self._is_blind():
            return f"none of its first {self.paths} paths shards"
        if self.steps > MAX_STEPS or self.cost > MAX_COST or self.barren > MAX_BARREN:
            return "its paths are too long to follow them all"
        if self.dry > (MAX_DRY if promising else MAX_DRY_REST):
            return "its last paths had nothing new"
        return f"it has more than {MAX_PATHS} paths" if self.paths >= MAX_PATHS else ""

    def _is_blind(self) -> bool:
        many = self.paths >= MAX_BLIND or self.steps > MAX_BLIND_STEPS
        return many or self.barren >= MAX_BARREN or self.dry > MAX_BLIND_DRY


class Frontier:
    """Paths not yet followed: new outcomes first, and of those the ones that promise most."""

    def __init__(self, covered: set[tuple[object, bool]]) -> None:
        # Of a path's outcomes those up to an index are followed again, with the one there flipped.
        self.queue: list[tuple[bool, int, int, tuple[bool, ...], int]] = []
        self.covered = covered
        self.count = 0
        self.repeats = 0
        self.promising = True  # the last one taken: a new outcome that may cause an event

    def next(self, sharding_seen: bool) -> tuple[bool, ...] | None:
        """The decisions to start the next path with; None when no path is worth its cost."""
        while self.queue:
            repeat, worth, _, outcomes, index = heapq.heappop(self.queue)
            if not sharding_seen and (repeat or worth != -SHARDS):
                continue  # only a path that may shard can hold a finding
            self.repeats += repeat
            self.promising = worth < -1 and not repeat
            if self.repeats > MAX_REPEATS:
                return None
            return (*outcomes[:index], not outcomes[index])
        return None

    def add(self, made: list[Decision], start: int) -> None:
        """Notes a path: each of its own decisions can be flipped."""
        outcomes = tuple(decision.outcome for decision in made)
        self.covered.update((decision.place, decision.outcome) for decision in made)
        for index, decision in enumerate(made[start:], start):
            if decision.worth:
                repeat = (decision.place, not decision.outcome) in self.covered
                self.count += 1
                heapq.heappush(self.queue, (repeat, -decision.worth, self.count, outcomes, index))
