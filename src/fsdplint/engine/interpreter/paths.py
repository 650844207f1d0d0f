"""Which paths of an entry to follow: one along the branches that reach sharding, then others.

A path is replayed from the start with the outcomes of its first decisions given, so there is no
state to save and join, and every finding has a path as its witness. Every branch that matters is
followed both ways; of the many ways to combine branches, only some are.

The replay terminates. A path is finite, because every node costs a step and steps are limited. A
prefix ends in a flipped decision of an earlier path, and `Frontier.add` only queues decisions
behind the prefix. So no two paths have the same prefix: they form a tree, which the budgets in
`Effort` bound.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.budget import Budget
from fsdplint.engine.interpreter.decisions import Decisions, NewOutcomes
from fsdplint.engine.interpreter.entry_point import Entry, start
from fsdplint.engine.interpreter.events import Event, Shard, Trace
from fsdplint.engine.interpreter.live import Live, without_sharding
from fsdplint.engine.interpreter.priority import SHARDS, Priorities
from fsdplint.engine.interpreter.semantics import SEMANTICS
from fsdplint.engine.interpreter.state import OutOfBudget, PathState
from fsdplint.engine.project.project import Project

# Why an early stop is one: a path has more steps than a path may have.
TOO_LONG = "one path exceeds the step limit"
_TOGETHER = "its paths together exceed the analysis budget"

# A kind of event, and where it happens.
Place = tuple[type[Event], ir.Node]


@dataclass(slots=True)
class Known:
    """What the paths of all entries so far have shown.

    Attributes:
        reached: functions and classes that ran.
        eventful: functions that ran when an event happened, or when a path became too long.
        with_sharding: those that ran on paths that shard, methods on an object that holds it.
        with_units: these, and methods on an object of which the code says that it holds it.
        places: where events happened.
        outcomes: of decisions on paths that shard, by place.
        before: what the last path that shards decided before it did, by place.
        live: the objects that live on, by their class, what set them up and what FSDP they hold,
            and where they do.
        cut: the paths that were cut before they sharded, since the last path that shards.
        cut_in: how many of these were cut in a function that took most of the path.
        patient: whether paths may be long, whatever was cut before: all entries had their turn.
    """

    budget: Budget
    reached: set[ir.Node] = field(default_factory=set)
    eventful: set[ir.Node] = field(default_factory=set)
    with_sharding: set[ir.Node] = field(default_factory=set)
    with_units: set[ir.Node] = field(default_factory=set)
    places: set[Place] = field(default_factory=set)
    outcomes: set[tuple[object, bool]] = field(default_factory=set)
    before: dict[object, bool] = field(default_factory=dict)
    live: dict[tuple[object, ...], tuple[Entry, Live]] = field(default_factory=dict)
    cut: int = 0
    cut_in: Counter[ir.Function] = field(default_factory=Counter)
    patient: bool = False

    def cut_functions(self) -> frozenset[ir.Function]:
        """Return the functions that paths were cut in so often that entering them is no use."""
        most = self.budget.cuts_per_function
        cut = () if self.patient else self.cut_in.items()
        return frozenset(each for each, count in cut if count >= most)

    def allowed(self) -> int:
        """Return the steps in which a path has to shard: fewer after paths that did not."""
        if self.patient:
            return self.budget.long_path_steps
        fewer = max(self.budget.path_steps // (1 + self.cut), self.budget.cut_path_steps)
        return min(fewer, self.budget.path_steps)

    def add(self, entry: Entry, state: PathState, shards: bool) -> bool:
        """Note a path; return whether it has an event at a place that had none before."""
        if shards:
            self.with_sharding |= state.reached - without_sharding(state.receivers, declared=False)
            self.with_units |= state.reached - without_sharding(state.receivers, declared=True)
            self.outcomes.update((each.place, each.outcome) for each in state.decisions.made)
            self.before = state.decisions.before_sharding()
        if self.patient:
            pass  # what a second turn comes to says nothing of the time that a first one takes
        elif shards:
            self.cut = 0
            self.cut_in.clear()
        elif not state.trace.complete:
            self.cut += 1
            self.cut_in.update(state.too_long)
        self.reached |= state.reached
        self.eventful |= state.eventful
        for found in state.live.values() if entry.driven is None else ():
            self.live.setdefault((found.node, found.setup, found.generations), (entry, found))
        places = {(type(event), event.site.node) for event in state.trace.events}
        fresh = not places <= self.places
        self.places |= places
        return fresh


@dataclass(slots=True)
class Exploration:
    """The paths of one entry that were followed, and those that are left.

    Attributes:
        found: the traces of the paths that shard, the preferred path first.
        limit: why paths are left, "" if none is.
        shortened: the outcomes of paths that were cut to save time.
        resumed: whether a path from the start has looked for outcomes that no path followed.
    """

    project: Project
    entry: Entry
    priorities: Priorities
    known: Known
    frontier: Frontier = field(init=False)
    effort: Effort = field(init=False)
    found: list[Trace] = field(default_factory=list)
    limit: str = ""
    shortened: list[tuple[bool, ...]] = field(default_factory=list)
    resumed: bool = False

    def __post_init__(self) -> None:
        self.frontier = Frontier(self.project.budget, self.known.outcomes)
        self.effort = Effort(self.project.budget)

    def follow_all(self) -> None:
        """Follow paths until none is left that is worth its cost, or until the budget is used."""
        self.project.keys = {}  # those of other entries would keep the objects of their paths alive
        limit = ""
        prefix: tuple[bool, ...] | None = self._first()
        while prefix is not None and not limit:
            _, state = self._follow(prefix)
            self.frontier.add(state.decisions, len(prefix))
            prefix = self.frontier.next(sharding_seen=bool(self.found))
            limit = self.effort.limit_reached(bool(self.found), self.frontier.repeating)
            if self.found and self.effort.is_long():
                limit = limit or _TOGETHER
        if prefix is not None and not self.frontier.repeating:
            self.frontier.put_back()
            self.limit = limit

    def follow_the_rest(self) -> None:
        """Follow some of the paths that are left, and forget the limit if none is."""
        self.project.keys = {}
        most = self.effort.steps + self.project.budget.rest_steps
        if self.known.patient and self.shortened:
            self._complete_shortened(most)
            self.limit = self.limit or _TOGETHER  # what they decide further on may lead to more
        if not self.limit:
            return
        prefix = self._take_new_outcomes(most) if self.found else self._look_for_sharding(most)
        if prefix is None:
            self.limit = ""
        else:
            self.frontier.put_back()

    def _complete_shortened(self, most: int) -> None:
        """Follow the paths that were cut to save time once more, as far as a path may go."""
        self.effort.cut = 0
        self.resumed = True
        while self.shortened and self.effort.steps < most:
            prefix = self.shortened.pop(0)
            _, state = self._follow(prefix)
            self.frontier.add(state.decisions, len(prefix))

    def _take_new_outcomes(self, most: int) -> tuple[bool, ...] | None:
        """Follow paths that each take as many outcomes as they can that no path has followed.

        Outcomes on sharding paths of other entries count as followed. Returns the next path.
        """
        self.frontier.careful |= self.effort.is_long()
        prefix = self.frontier.next_open() if self.resumed else self._first()
        self.resumed = True
        while prefix is not None and self.effort.allows_more(most):
            new = self.frontier.new_outcomes()
            shards, state = self._follow(prefix, new)
            # Of a path that does not shard, the first of its new outcomes may be the reason.
            self.frontier.add(state.decisions, len(prefix), None if shards else len(prefix))
            self.frontier.careful |= not shards
            prefix = self.frontier.next_open()
        return prefix

    def _look_for_sharding(self, most: int) -> tuple[bool, ...] | None:
        """Follow paths until one shards; return the next path.

        If a path of another entry shards, the first one decides as that does.
        """
        if self.effort.allows_more(most) and (guide := self.frontier.new_guide(self.known.before)):
            _, state = self._follow((), NewOutcomes(set(), {}, guide, ()))
            self.frontier.add(state.decisions, 0)
        prefix = self.frontier.next(sharding_seen=bool(self.found))
        while prefix is not None and not self.found and self.effort.allows_more(most):
            _, state = self._follow(prefix)
            self.frontier.add(state.decisions, len(prefix))
            prefix = self.frontier.next(sharding_seen=bool(self.found))
        return prefix

    def _first(self) -> tuple[bool, ...]:
        return self.entry.driven.found.outcomes if self.entry.driven else ()

    def _follow(
        self, prefix: tuple[bool, ...], new: NewOutcomes | None = None
    ) -> tuple[bool, PathState]:
        """Follow one path; return whether it shards, and its final state."""
        state = self._run(Decisions(prefix, new))
        shards = state.may_have_sharded()
        if shards:
            self.frontier.note_sharding(state.decisions)
        if shards and not (self.entry.driven and _shards_again(state.trace)):
            self.found.append(state.trace)
        self.effort.add(state, shards, fresh=self.known.add(self.entry, state, shards))
        return shards, state

    def _run(self, decisions: Decisions) -> PathState:
        entry, known = self.entry, self.known
        trace = Trace(entry.name, entry.unit.path, self.project.keys)
        state = PathState(
            self.project,
            trace,
            decisions,
            self.priorities,
            SEMANTICS,
            known.allowed(),
            known.cut_functions(),
        )
        try:
            start(state, entry)
        except (OutOfBudget, RecursionError):
            trace.complete = False
            if state.shortened:
                self.shortened.append(tuple(each.outcome for each in decisions.made))
            else:
                self.project.stop_early(entry.unit.path, entry.name, TOO_LONG)
        trace.decisions = decisions.held()
        return state


def _shards_again(trace: Trace) -> bool:
    """True if a method shards what lives already: it may be for another mode of the program."""
    return any(shard.time > trace.method_start for shard in trace.of(Shard))


@dataclass(slots=True)
class Effort:
    """What the paths of an entry have cost so far.

    Attributes:
        stale: the steps since the last path with an event at a place that had none before.
        cut: the paths that were cut before they sharded.
    """

    budget: Budget
    paths: int = 0
    steps: int = 0
    cost: float = 0.0
    stale: int = 0
    cut: int = 0

    def add(self, state: PathState, shards: bool, *, fresh: bool) -> None:
        self.paths += 1
        self.steps += state.steps
        self.cost += state.cost
        self.stale = 0 if fresh else self.stale + state.steps
        self.cut += not shards and not state.trace.complete

    def limit_reached(self, sharded: bool, repeating: bool) -> str:
        """Return why no further path is followed, "" if one may be.

        Args:
            sharded: whether a path shards.
            repeating: whether the next path only combines branches already followed.
        """
        budget = self.budget
        if self.stale > (budget.repeated_steps if repeating else budget.stale_steps):
            return "many paths in a row reached no new event"
        if self.cut > budget.cut_paths:
            return "too many of its paths exceed the step limit"
        steps = budget.entry_steps if sharded else budget.unsharded_entry_steps
        if self.steps > steps or self.cost > budget.entry_cost:
            return _TOGETHER
        return f"more than {budget.paths} paths" if self.paths >= budget.paths else ""

    def is_long(self) -> bool:
        """True if the paths are so long on average that only a few can be followed."""
        return self.steps > self.paths * self.budget.many_path_steps

    def allows_more(self, steps: int) -> bool:
        """True if another path may follow, of so many steps for all."""
        budget = self.budget
        cut = self.cut > budget.cut_paths
        return not cut and self.steps < steps and self.cost + budget.path_cost < budget.entry_cost


# A place, and what a path decided there. Without the key, which keeps the path's objects alive.
_Outcome = tuple[object, bool]


def _flipped(decided: _Outcome) -> _Outcome:
    place, outcome = decided
    return place, not outcome


@dataclass(frozen=True, slots=True)
class _Flip:
    """A path to follow: it decides as an earlier one did, and one decision the other way.

    Attributes:
        index: that of the decision.
        open: whether the path may not shard, as the earlier one had not by then.
    """

    made: list[_Outcome]
    index: int
    priority: int
    open: bool

    def outcome(self) -> _Outcome:
        """Return the flipped decision's outcome."""
        return _flipped(self.made[self.index])

    def prefix(self) -> tuple[bool, ...]:
        """Return the outcomes to start with: those before the decision, and its flipped one."""
        return (*(outcome for _, outcome in self.made[: self.index]), self.outcome()[1])


# Whether a path only combines branches already followed, whether it may not shard if that counts,
# its priority negated, and a number.
_Rank = tuple[bool, bool, int, int]


class Frontier:
    """Paths to follow: new outcomes first, and of those the highest priority.

    Attributes:
        queue: heap of paths by rank.
        last: what was taken from it last.
        known: the outcomes that sharding paths of this and earlier entries followed, by place.
        covered: those that some path of this entry followed.
        wanted: the outcome on every path that shards, None if both are, of the places that may
            decide on it.
        kept: what the first path that shards decided before it did, by place.
        careful: whether paths that take new outcomes keep to these until they shard.
        worth: the places whose other outcome was worth a path.
        repeating: whether the last path that was taken only combines branches already followed.
        surely: whether paths that surely shard come first.
        guided: outcomes of other entries that a path of this one was to take.
    """

    def __init__(self, budget: Budget, known: Set[tuple[object, bool]]) -> None:
        self.budget = budget
        self.known = known
        self.queue: list[tuple[_Rank, _Flip]] = []
        self.last: tuple[_Rank, _Flip] | None = None
        self.covered: set[tuple[object, bool]] = set()
        self.wanted: dict[object, bool | None] = {}
        self.kept: dict[object, bool] = {}
        self.careful = False
        self.worth: set[object] = set()
        self.count = 0
        self.repeats = 0
        self.repeating = False
        self.surely = False
        self.guided: set[_Outcome] = set()

    def next(self, sharding_seen: bool) -> tuple[bool, ...] | None:
        """Return the outcomes to start the next path with, None if no path is worth its cost."""
        while self.queue:
            self.last = (repeat, *_), flip = heapq.heappop(self.queue)
            if not repeat and flip.outcome() in self.covered:
                self._push(flip, repeat=True)  # a path since then covered it
                continue
            if not sharding_seen and (repeat or flip.priority != SHARDS):
                continue  # only a path that may shard can hold a finding
            self.repeats += repeat
            self.repeating = repeat
            if self.repeats > self.budget.repeats:
                return None
            return flip.prefix()
        return None

    def next_open(self) -> tuple[bool, ...] | None:
        """Return the outcomes of a path up to one that no path followed, None if there is none."""
        if not self.surely:
            self.surely = True
            queued, self.queue = self.queue, []
            for (repeat, *_), flip in sorted(queued):
                self._push(flip, repeat)
        while self.queue:
            self.last = _, flip = heapq.heappop(self.queue)
            if flip.outcome() in self.covered or flip.outcome() in self.known:
                continue
            if not flip.open or flip.priority == SHARDS or self._leads(flip):
                return flip.prefix()
        return None

    def _leads(self, flip: _Flip) -> bool:
        """True if a path decides as all paths that shard do, up to the decision it flips."""
        before = flip.made[: flip.index]
        return all(self.wanted.get(place) in (None, outcome) for place, outcome in before)

    def note_sharding(self, decisions: Decisions) -> None:
        """Note what a path that shards decides at each place on which sharding may depend."""
        self.kept = self.kept or decisions.before_sharding()
        for each in decisions.made:
            if each.priority == SHARDS:
                same = self.wanted.get(each.place, each.outcome) is each.outcome
                self.wanted[each.place] = each.outcome if same else None

    def new_guide(self, outcomes: Mapping[object, bool]) -> Mapping[object, bool]:
        """Return outcomes by place if some were not tried where paths decided; else nothing."""
        untried = set(outcomes.items()) - self.covered - self.guided
        self.guided |= untried
        return outcomes if any(_flipped(each) in self.covered for each in untried) else {}

    def new_outcomes(self) -> NewOutcomes:
        """Return how to decide on a path that takes as many new outcomes as it can."""
        kept = self.kept if self.careful else {}
        return NewOutcomes(self.covered | self.known, self.wanted, kept, self.worth)

    def put_back(self) -> None:
        """Put the path that was taken last back into the queue, once, if it was not followed."""
        if self.last is not None:
            heapq.heappush(self.queue, self.last)
            self.last = None

    def add(self, decisions: Decisions, start: int, end: int | None = None) -> None:
        """Queue a path for each decision from ``start`` up to ``end`` that can be flipped."""
        made = decisions.made[:end]
        outcomes = [(decision.place, decision.outcome) for decision in made]
        self.covered.update(outcomes)
        sharded = len(made) if decisions.sharded is None else decisions.sharded
        for index, decision in enumerate(made[start:], start):
            if decision.priority:
                self.worth.add(decision.place)
                flip = _Flip(outcomes, index, decision.priority, index < sharded)
                repeat = flip.outcome() in self.covered
                repeat |= decision.priority < SHARDS and flip.outcome() in self.known
                self._push(flip, repeat)

    def _push(self, flip: _Flip, repeat: bool) -> None:
        self.count += 1
        rank = (repeat, flip.open and self.surely, -flip.priority, self.count)
        heapq.heappush(self.queue, (rank, flip))
