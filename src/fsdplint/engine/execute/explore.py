"""Which paths to follow: each entry once along the branches that reach sharding, then the others.

A path is replayed from the start with the outcomes of its first decisions given, so there is no
state to save and join, and every finding has a path as its witness.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.accelerators import prepares_sharded
from fsdplint.engine.events import Call, Event, Shard, Trace
from fsdplint.engine.execute.decisions import Decision, Decisions
from fsdplint.engine.execute.effects import Effects
from fsdplint.engine.execute.state import SHARDS, Frame, Interest, OutOfBudget
from fsdplint.engine.link import Project
from fsdplint.engine.unit import Definition, Unit
from fsdplint.engine.values import Arguments, ClassValue, Const, FunctionValue, Scope

MAX_PATHS = 20
MAX_BLIND = 3  # paths none of which shards: in public code the later ones never do either
MAX_BLIND_PATHS = 30_000  # steps of those; in public code the first sharding is within 25,000
MAX_REPEATS = 6  # paths on which every single outcome was followed before
MAX_ENTRY_STEPS = 150_000
MAX_ENTRY_COST = 20_000  # five times a path's
MAX_BLIND_STEPS = 200_000  # in entries of one file, none of which shards
MAX_PROGRAM_STEPS = 3_000_000  # about a minute
MAX_PROGRAM_PAIRS = 1_000_000  # of sharding calls of one path, over all paths

# Names whose code can cause an event: such branches are worth following apart.
_SHARDING_NAMES = frozenset({"fully_shard", "FullyShardedDataParallel"})
_EVENT_NAMES = frozenset(
    {
        "no_sync",
        "state_dict",
        "parameters",
        "named_parameters",
        "save",
        "save_file",
        "dump",
        "param_groups",
        "forward",
        "prepare",
        "unshard",
        "register_fsdp_forward_method",
        "set_requires_gradient_sync",
        "set_requires_all_reduce",
        "clip_grad_norm_",
        "clip_grad_norm",
        "get_total_norm",
    }
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a program can start: a file's top level, a function, or a method of a new object."""

    unit: Unit
    definition: Definition | None = None
    method: Definition | None = None

    @property
    def name(self) -> str:
        parts = [part.name for part in (self.definition, self.method) if part is not None]
        return ".".join(parts) or "<module>"


class Machine(Effects):
    """One path through one entry."""

    def start(self, entry: Entry) -> None:
        if entry.definition is None:
            scope = Scope({"__name__": Const("__main__")}, None, entry.unit)
            self.group_up = False
            self.run(entry.unit.module.body, Frame(scope, entry.unit))
        else:
            self.start_definition(entry, entry.definition)

    def start_definition(self, entry: Entry, definition: Definition) -> None:
        frame = Frame(self.imported_scope(entry.unit), entry.unit)
        value = self.lookup(definition.name, frame.scope)
        node = definition.unit.node(definition)
        if isinstance(value, FunctionValue) and node is not None:
            self.invoke(value, self.open_parameters(value, None), {}, frame, node)
        elif isinstance(value, ClassValue):
            self.start_method(entry, value, frame)

    def start_method(self, entry: Entry, cls: ClassValue, frame: Frame) -> None:
        init = cls.lookup("__init__")
        given = (
            self.open_parameters(init, self.unknown())[1:]
            if isinstance(init, FunctionValue)
            else []
        )
        made = self.instantiate(cls, Arguments(given, {}), cls.node, frame)
        if entry.method is None or entry.method.name in run_by_construction(cls):
            return
        method, node = cls.lookup(entry.method.name), entry.unit.node(entry.method)
        if isinstance(method, FunctionValue) and node is not None:
            self.invoke(method, self.open_parameters(method, made), {}, frame, node)


def run_by_construction(cls: ClassValue) -> set[str]:
    """The constructor and the methods it calls on ``self``, which nobody calls once more."""
    found = {"__init__"}
    names = ["__init__"]
    while names:
        method = cls.lookup(names.pop())
        if isinstance(method, FunctionValue):
            called = set(_called_on_receiver(method.function)) - found
            found |= called
            names += called
    return found


def _called_on_receiver(function: ir.Function) -> Iterator[str]:
    receiver = function.parameters[0].name if function.parameters else ""
    for node in ir.walk(function):
        called = node.func if isinstance(node, ir.Call) else None
        owner = called.value if isinstance(called, ir.Attribute) else None
        if isinstance(owner, ir.Name) and owner.id == receiver:
            assert isinstance(called, ir.Attribute)
            yield called.attr


def explore(project: Project, units: Iterable[Unit]) -> list[Trace]:
    """The traces of every entry of ``units`` that can reach a sharding call."""
    units = list(units)
    interest = Interest(_SHARDING_NAMES | _hot_names(project, units), _EVENT_NAMES)
    explorer = _Explorer(project, interest)
    # A program before its tests, should the budget not do for both.
    units.sort(key=lambda unit: project.is_test(unit.path))
    for unit in units:
        if unit.top.entry and project.unit(Path(unit.path)):
            explorer.follow(Entry(unit))
    for entry in _entries(project, units, explorer.reached):
        explorer.follow(entry)
    return explorer.traces


def _hot_names(project: Project, units: list[Unit]) -> frozenset[str]:
    """Names by which the program refers to code that shards, import aliases included."""
    names: set[str] = set()
    for unit in units:
        path = Path(unit.path)
        names.update(name for name in unit.bindings if project.refers_to_sharding(path, name))
        for definition in unit.definitions.values():
            every = (definition, *definition.methods.values())
            names.update(each.name for each in every if each.hot and each.name != "__init__")
    return frozenset(names)


def _entries(project: Project, units: list[Unit], reached: set[ir.Node]) -> Iterator[Entry]:
    """Hot functions and methods that no entry before has reached, callers before callees."""
    counts = _mention_counts(units)
    for unit in units:
        entries = [each for each in unit.definitions.values() if each.entry]
        if not entries or project.unit(Path(unit.path)) is None:
            continue
        for definition in sorted(entries, key=lambda d: counts[d.name]):
            if _is_fresh(definition, reached):
                yield Entry(unit, definition)
            for method in definition.methods.values():
                if method.entry and _is_fresh(method, reached):
                    yield Entry(unit, definition, method)


def _is_fresh(definition: Definition, reached: set[ir.Node]) -> bool:
    """Whether no path has run a function yet."""
    node = definition.unit.node(definition)
    return isinstance(node, ir.FunctionDef) and node.function not in reached


def _mention_counts(units: list[Unit]) -> Counter[str]:
    """How many definitions mention a name: callers are mentioned less than what they call."""
    return Counter(
        name
        for unit in units
        for definition in unit.definitions.values()
        for name in definition.names | definition.attributes
    )


class _Explorer:
    """Follows entries one after the other, within a budget for all of them."""

    def __init__(self, project: Project, interest: Interest) -> None:
        self.project = project
        self.interest = interest
        self.traces: list[Trace] = []
        self.reached: set[ir.Node] = set()
        self.steps = 0
        self.pairs = 0
        self.blind: Counter[Unit] = Counter()  # steps in entries that do not shard

    def follow(self, entry: Entry) -> None:
        limit = self._limit_reached(entry.unit)
        if limit:
            place = (entry.unit.path, entry.name)
            self.project.exhausted[place] = limit
            self.project.overlong.add(place)
            return
        try:
            found, steps = _paths(self.project, entry, self.interest, self.reached)
        except Exception as error:  # a fault of the engine's costs no other entry
            self.project.crashes[entry.unit.path] = error
            return
        self.traces.extend(found)
        self.steps += steps
        self.pairs += sum(len(trace.of(Shard)) ** 2 for trace in found)
        if not found:
            self.blind[entry.unit] += steps

    def _limit_reached(self, unit: Unit) -> str:
        """Why no further entry of ``unit`` is followed, "" if one may be."""
        if self.steps > MAX_PROGRAM_STEPS or self.pairs > MAX_PROGRAM_PAIRS:
            return "the project has more code that shards than is followed"
        if self.blind[unit] > MAX_BLIND_STEPS:
            return "none of the code before it in its file was seen to shard"
        return ""


def _paths(
    project: Project, entry: Entry, interest: Interest, reached: set[ir.Node]
) -> tuple[list[Trace], int]:
    """The paths of an entry that shard, as preferred and then flipped, and the steps it took."""
    frontier = _Frontier()
    found: list[Trace] = []
    count = steps = 0
    cost = 0.0
    cut = ""
    prefix: tuple[bool, ...] | None = ()
    project.keys.clear()  # they hold the objects of the paths they are from, and no others ask
    while prefix is not None and not cut:
        machine = _path(project, entry, prefix, interest)
        count, steps, cost = count + 1, steps + machine.steps, cost + machine.cost
        reached |= machine.reached
        if any(map(_may_shard, machine.trace.events)):
            found.append(machine.trace)
        frontier.add(machine.decisions.made, len(prefix))
        prefix = frontier.next(sharding_seen=bool(found))
        cut = _limit_reached(bool(found), count, steps, cost)
    if prefix is not None:
        project.exhausted.setdefault((entry.unit.path, entry.name), cut)
    return found, steps


def _path(project: Project, entry: Entry, prefix: tuple[bool, ...], interest: Interest) -> Machine:
    """Follows one path; the machine it was followed by holds its trace."""
    trace = Trace(entry.name, entry.unit.path)
    machine = Machine(project, trace, Decisions(prefix), interest)
    try:
        machine.start(entry)
    except (OutOfBudget, RecursionError):
        trace.complete = False
        project.overlong.add((entry.unit.path, entry.name))
        project.exhausted[entry.unit.path, entry.name] = "a path is too long to be followed"
    made = machine.decisions.made
    trace.decisions = [(decision.key, decision.outcome) for decision in made]
    return machine


def _limit_reached(sharding_seen: bool, paths: int, steps: int, cost: float) -> str:
    """Why no further path of an entry is followed, "" if one may be."""
    if not sharding_seen and (paths >= MAX_BLIND or steps > MAX_BLIND_PATHS):
        return f"none of its first {paths} paths shards"
    if steps > MAX_ENTRY_STEPS or cost > MAX_ENTRY_COST:
        return "its paths are too long to follow them all"
    return f"it has more than {MAX_PATHS} paths" if paths >= MAX_PATHS else ""


def _may_shard(event: Event) -> bool:
    return isinstance(event, Shard) or (isinstance(event, Call) and prepares_sharded(event))


class _Frontier:
    """Paths not yet followed: new outcomes first, and of those the ones that promise most."""

    def __init__(self) -> None:
        # Of a path's outcomes those up to an index are followed again, with the one there flipped.
        self.queue: list[tuple[bool, int, int, tuple[bool, ...], int]] = []
        self.covered: set[tuple[object, bool]] = set()
        self.count = 0
        self.repeats = 0

    def next(self, sharding_seen: bool) -> tuple[bool, ...] | None:
        """The decisions to start the next path with; None when no path is worth its cost."""
        while self.queue:
            repeat, worth, _, outcomes, index = heapq.heappop(self.queue)
            if not sharding_seen and worth != -SHARDS:
                continue  # only a path that may shard can hold a finding
            self.repeats += repeat
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
