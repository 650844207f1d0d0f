"""The state of one path: variables, branches taken, the trace, and the budgets that bound it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from fsdplint.engine import ir
from fsdplint.engine.events import Divided, Escape, Event, Repoint, Shard, Trace, Use
from fsdplint.engine.execute.decisions import Decisions
from fsdplint.engine.link import Project, identifiers
from fsdplint.engine.site import Guard, Site
from fsdplint.engine.unit import Definition, Unit
from fsdplint.engine.values import (
    ClassValue,
    Const,
    FunctionValue,
    ModuleScope,
    Object,
    Origin,
    Parameters,
    Scope,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    Value,
    contained,
    reachable,
    resolved,
)

# What following code promises that may shard.
SHARDS = 3
# What a path leaves for facts to look at: events, each sharding call as several since facts
# compare them with each other; and objects that it hands to unknown code, many as one.
SHARD_COST = 32
OBJECTS_AT_COST = 64

E = TypeVar("E", bound=Event)


class Flow(Enum):
    """How a block of statements ends."""

    NEXT = "next"
    RETURN = "return"
    BREAK = "break"
    CONTINUE = "continue"
    RAISE = "raise"


@dataclass(frozen=True, slots=True, eq=False)
class Interest:
    """Names by which code refers to sharding, and to anything else that causes events."""

    sharding: frozenset[str]
    events: frozenset[str]
    _worths: dict[ir.Node, int] = field(default_factory=dict)
    _mentioned: dict[ir.Node, frozenset[str]] = field(default_factory=dict)

    def mentioned(self, node: ir.Node) -> frozenset[str]:
        """The names and attributes that occur in ``node``."""
        if node not in self._mentioned:
            names, attributes = identifiers(node)
            self._mentioned[node] = names | attributes
        return self._mentioned[node]

    def worth(self, node: ir.Node) -> int:
        """How much following ``node`` promises: 3 may shard, 2 may cause another event, 1 less."""
        if node not in self._worths:
            mentioned = self.mentioned(node)
            other = 1 if mentioned.isdisjoint(self.events) else 2
            self._worths[node] = other if mentioned.isdisjoint(self.sharding) else SHARDS
        return self._worths[node]


class OutOfBudget(Exception):
    """The path is longer than the engine is willing to follow."""


@dataclass(slots=True, eq=False)
class Frame:
    """An active function, class body or module.

    Attributes:
        returned: the values of the return statements met, partial ones included.
        receiver: what ``self`` is, for methods.
        elsewhere: scopes of the names that are declared global or nonlocal.
        on_yield: the body of the with statement that entered this generator function.
        mark: how many branches had been taken when it began.
        subjects: what the match statements that are under way are about.
    """

    scope: Scope
    unit: Unit
    function: FunctionValue | None = None
    receiver: Value | None = None
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    loops: int = 0
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    on_yield: Callable[[Value], None] | None = None
    mark: int = 0
    subjects: list[Value] = field(default_factory=list)


class Under:
    """A context in which more branches were taken; a class, since generators are slow to enter."""

    __slots__ = ("guards", "mark", "taken")

    def __init__(self, guards: list[Guard], taken: Sequence[Guard]) -> None:
        self.guards = guards
        self.taken = taken

    def __enter__(self) -> None:
        self.mark = len(self.guards)
        self.guards.extend(self.taken)

    def __exit__(self, *error: object) -> None:
        del self.guards[self.mark :]


class State:
    """What every part of the machine shares."""

    def __init__(
        self, project: Project, trace: Trace, decisions: Decisions, interest: Interest
    ) -> None:
        self.project = project
        self.trace = trace
        self.decisions = decisions
        self.interest = interest
        self.reached: set[ir.Node] = set()
        self.eventful: set[ir.Node] = set()  # functions that are not over when an event happens
        self.guards: list[Guard] = []
        self.calls: list[tuple[str, ir.Node]] = []
        self.active: list[ir.Function] = []
        self.begun: dict[ir.Function, int] = {}  # the steps before each
        self.too_long: list[ir.Function] = []  # those that took most of a path that is
        self.in_forward: list[Object] = []
        self.entered_forwards: set[Object] = set()
        self.sums: dict[ir.Expr, Value] = {}
        self.clock = 0
        self.steps = 0
        self.allowed = project.budget.path_steps
        self.constants = 0  # of displays
        self.cost = 0.0
        self.serial = 0
        self.importing = 0
        self.expecting_failure = False  # of imports
        self.undecided = 0
        self.enumerating: Object | None = None
        self.on_meta: bool | None = False
        self.tracked: set[Object] = set()
        self.below: dict[Object, set[Object]] = {}  # the tracked objects that each one is or has
        self.seed_differs = False
        self.group_up: bool | None = None
        self.scopes: dict[Unit, ModuleScope] = {}
        self.on_yield: Callable[[Value], None] | None = None

    # Time and place

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def spend(self) -> None:
        self.steps += 1
        if self.steps > self.allowed:
            self.run_out()

    def run_out(self) -> None:
        """Ends the path, which is too long."""
        half = self.steps // 2
        # What called it may call something else the next time.
        self.too_long = [each for each in self.active if self.begun[each] < half][-1:]
        self.give_up()

    def give_up(self) -> None:
        """Ends the path."""
        self.eventful.update(self.active)
        raise OutOfBudget

    def begin(self, function: ir.Function) -> None:
        self.active.append(function)
        self.begun[function] = self.steps

    def site(self, node: ir.Node, frame: Frame) -> Site:
        return Site(frame.unit.path, node, tuple(self.calls), tuple(self.guards))

    def emit(self, event: Event) -> None:
        if not self.importing:
            self.trace.events.append(event)
            if not isinstance(event, Divided):  # which says nothing but of a loss
                self.eventful.update(self.active)
            self.charge(SHARD_COST if isinstance(event, Shard) else 1)

    def charge(self, cost: float) -> None:
        self.cost += cost
        if self.cost > self.project.budget.path_cost:
            raise OutOfBudget

    def divided(self, value: Value, by: Value, result: Value, node: ir.Node, frame: Frame) -> None:
        value = resolved(value)
        if isinstance(value, Object):
            self.emit(Divided(self.tick(), self.site(node, frame), value, by, result))

    def under(self, guards: Sequence[Guard]) -> Under:
        """Everything inside happens only if these branches were taken."""
        return Under(self.guards, guards)

    # Objects

    def new(
        self,
        origin: Origin,
        cls: ClassValue | Symbol | None = None,
        site: Site | None = None,
        taint: Taint = Taint.NONE,
        key: object = None,
    ) -> Object:
        self.serial += 1
        serial = -self.serial if self.importing else self.serial
        created = Object(serial, origin, cls, site, key=self.interned(key), taint=taint)
        created.born, created.on_meta = self.clock, self.on_meta
        return created

    def unknown(self, taint: Taint = Taint.NONE, key: object = None) -> Object:
        return self.new(Origin.UNKNOWN, taint=taint, key=key)

    def part(
        self,
        whole: Object,
        step: str,
        cls: ClassValue | Symbol | None = None,
        taint: Taint = Taint.NONE,
    ) -> Object:
        """A submodule, an element or another view of an object."""
        made = self.new(Origin.PART, cls, taint=taint | whole.taint)
        made.parent, made.step = whole, step
        if whole.key is not None:
            made.key = self.interned(("part", whole.key, step))
        return made

    def interned(self, key: object) -> object:
        """A short stand-in for a key: keys made of keys would grow with every call."""
        if key is None:
            return None
        return ("key", self.project.keys.setdefault(key, next(self.project.numbers)))

    def escape(self, node: ir.Node, frame: Frame, *values: Value) -> None:
        """Unknown code gets hold of these and of all that is reachable from them."""
        now = self.tick()
        had: set[Object] = set()
        for value in values:
            for item in contained(value):
                if isinstance(item, StateDict):
                    item.escaped = True
            had.update(reachable(value))
        self.charge(len(had) / OBJECTS_AT_COST)
        if had and not self.importing:
            self.trace.escapes.append(Escape(now, self.site(node, frame), frozenset(had)))
        for item in had:
            if item.escaped is None:
                item.escaped = now
            if any(capture.module in had for capture in item.captures):
                self.emit(Repoint(now, self.site(node, frame), item, certain=False))

    def met_unread(self) -> None:
        """Code that is not read runs, or may: it can bring a process group up."""
        if self.group_up is False:
            self.group_up = None

    # Tracked objects

    def track(self, item: Object) -> None:
        """Notes from now on what is done to ``item`` outside the program's own code."""
        if not self.importing and item not in self.tracked:
            self.tracked.add(item)
            self._tracked_below(item, {item})

    def attach(self, part: Object, whole: Object, step: str) -> None:
        """An object that is no part of another yet becomes one."""
        part.parent, part.step = whole, step
        self._tracked_below(whole, self.below.get(part, set()))

    def _tracked_below(self, whole: Object, items: set[Object]) -> None:
        for above in (whole, *whole.ancestors()) if items else ():
            self.below.setdefault(above, set()).update(items)

    def used(
        self, time: int, name: str, values: Sequence[Value], node: ir.Node, frame: Frame
    ) -> None:
        """The function or method ``name`` gets ``values``."""
        if not self.importing:
            self.trace.called.append((time, name))
        if self.tracked:
            got = {item for value in values for item in _held(value)}
            self.charge(len(got) / OBJECTS_AT_COST)
            self.changed(time, name, got, node, frame)

    def changed(self, time: int, name: str, got: set[Object], node: ir.Node, frame: Frame) -> None:
        """``name`` does something to these objects, or to what they are parts of."""
        if self.importing:
            return
        whole = _above(got)
        parts = {item for each in got for item in self.below.get(each, ())}
        concerned = frozenset(parts | (self.tracked & whole))
        if concerned:
            given = concerned & got
            self.trace.uses.append(Use(time, self.site(node, frame), name, concerned, given))

    # Relevance

    def is_hot(self, nodes: Sequence[ir.Node]) -> bool:
        """Whether code can reach an event that a rule may ask about."""
        return self.worth(nodes) > 1

    def leads_to_events(self, nodes: Sequence[ir.Node], unit: Unit) -> bool:
        """Whether code can reach an event, through any number of functions of known names."""
        mentioned = {name for node in nodes for name in self.interest.mentioned(node)}
        return self.is_hot(nodes) or self._mention_events(unit, mentioned)

    def _mention_events(self, unit: Unit, names: Iterable[str]) -> bool:
        seen: set[Definition] = set()
        waiting = [(unit, name) for name in names]
        while waiting:
            found = self.project.loaded_definition(*waiting.pop())
            if found is None or found in seen:
                continue
            seen.add(found)
            if not self.interest.events.isdisjoint(found.names | found.attributes):
                return True
            waiting += ((found.unit, name) for name in found.names)
        return False

    def worth(self, nodes: Sequence[ir.Node]) -> int:
        """How much following ``nodes`` promises, see `Interest.worth`."""
        return max(map(self.interest.worth, nodes), default=1)


def _above(items: Iterable[Object]) -> set[Object]:
    """What the items are parts of."""
    found: set[Object] = set()
    for item in items:
        above = item.parent
        while above is not None and above not in found:
            found.add(above)
            above = above.parent
    return found


def _held(value: Value) -> Iterator[Object]:
    """The objects that code given ``value`` can change, tensors standing for their owners."""
    if type(value) is not Object:
        yield from _owners(value)
    yield from reachable(value)


def _owners(value: Value) -> Iterator[Object]:
    for item in contained(value):
        if isinstance(item, (Parameters, Tensor)):
            yield item.module
        elif isinstance(item, StateDict):
            yield item.owner


def is_const(value: Value, constant: object) -> bool:
    return isinstance(value, Const) and value.value is constant
