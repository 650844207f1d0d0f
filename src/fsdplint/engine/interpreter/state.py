"""The state of one path: where it is, what is known, the trace, and the budgets that bound it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from fsdplint.engine import ir
from fsdplint.engine.interpreter.accelerators import prepares_sharded
from fsdplint.engine.interpreter.decisions import Decisions
from fsdplint.engine.interpreter.differing import forget
from fsdplint.engine.interpreter.events import (
    Call,
    Divided,
    Escape,
    Event,
    Repoint,
    Shard,
    Sharding,
    Trace,
)
from fsdplint.engine.interpreter.frameworks import has_sharded
from fsdplint.engine.interpreter.priority import Priorities
from fsdplint.engine.interpreter.ranks import rank_sources, rank_tests, ranks_of
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard, Site
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    Const,
    FunctionValue,
    Mapping,
    ModuleScope,
    Object,
    Origin,
    Scope,
    StateDict,
    Symbol,
    Taint,
    Value,
    contained,
    key_of,
    reachable,
)
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.unit import Unit

if TYPE_CHECKING:
    from fsdplint.engine.interpreter.live import Live

# The cost of what a path leaves for facts to look at: an event is 1, a sharding call more, since
# facts compare them with each other, and an object that is handed to unknown code less.
SHARD_COST = 32
OBJECTS_AT_COST = 64
P = ParamSpec("P")
# Younger than any object.
NEVER = -sys.maxsize
# The value of a call that ends the program.
EXIT = object()


class Flow(Enum):
    """How a block of statements ends."""

    NEXT = "next"
    RETURN = "return"
    BREAK = "break"
    CONTINUE = "continue"
    RAISE = "raise"


class OutOfBudget(Exception):
    """The path is longer than its budget."""


@dataclass(slots=True, eq=False)
class Frame:
    """An active function, class body or module.

    Attributes:
        scope: its variables.
        unit: the file that its code is in.
        function: the function that it runs, None for a class body or a module.
        receiver: the value of ``self`` in a method.
        returned: the values of the return statements so far, also of those under a condition.
        yielded: the values that it yielded, as a generator function.
        loops: the loops around it whose body runs once for all iterations, callers' loops included.
        elsewhere: scopes of the names that are declared global or nonlocal.
        on_yield: the body of the with statement that entered this generator function. It runs at
            the first ``yield``, inside the generator's frame, so that events in the body have the
            guards of both; then it is None, since a context manager yields once.
        mark: how many branches had been taken when it began.
        subjects: the subjects of the active match statements, innermost last.
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


# Tables hold functions for all kinds of nodes, each of which takes its own kind.
Evaluator = Callable[["PathState", Any, Frame], Value]
Executor = Callable[["PathState", Any, Frame], Flow]
LibraryCall = Callable[["PathState", Symbol, Arguments, ir.Call, Frame], Value]
# One library function's; None where it says nothing of a call with these arguments.
Effect = Callable[["PathState", Arguments, ir.Call, Frame], Value | None]
LibraryMethod = Callable[["PathState", Value, str, Arguments, ir.Call, Frame], Value]


@dataclass(frozen=True, slots=True)
class Semantics:
    """What nodes and library calls do.

    Modules use these tables to call functions of modules above them, so that imports run downwards
    only.

    Attributes:
        evaluate: for each kind of expression, the function that gives its value.
        execute: for each kind of statement, the function that executes it.
        library_call: what a call of a library's function or class does.
        library_method: what a method does that is not the program's own.
    """

    evaluate: MappingType[type[ir.Node], Evaluator]
    execute: MappingType[type[ir.Node], Executor]
    library_call: LibraryCall
    library_method: LibraryMethod


class Group(Enum):
    """The state of the default process group."""

    ABSENT = "not made yet"
    UP = "up"
    DESTROYED = "destroyed"


GROUP_DOWN = (Group.ABSENT, Group.DESTROYED)


@dataclass(slots=True, eq=False)
class PathState:
    """One path through one entry, as far as it has been followed.

    Attributes:
        project: the files of the program, and the budget.
        trace: the events so far, which facts are read from.
        decisions: the outcomes of the conditions that the path had to decide.
        priorities: the names that make code worth following.
        semantics: what nodes and library calls do.
        allowed: the steps that the path may take.
        cut_functions: functions that are not entered before something is sharded.
        steps: the statements and expressions so far.
        constants: the constants of displays, which cost less than a step.
        cost: what the path leaves for facts to look at so far.
        clock: the time; events and values are ordered by it.
        serial: the number of the last object.
        imported_serial: that of the last object of an imported module, which is negative.
        reached: the functions and classes that ran.
        receivers: the objects that each method ran on.
        live: the objects with sharded modules that constructors left, the first of each class.
        until: the class whose construction ends the path, to go on with a method of the object.
        eventful: the functions that were active when an event happened.
        too_long: the function that took most of a path that is too long, if one did.
        shortened: whether the path was ended to save time, and may be followed further later.
        scopes: the variables of the modules that were imported.
        stars: the files that each module imports with a star for type checkers, in order.
        sought: the variables that are being looked for there.
        guards: the branches taken that the current code depends on.
        calls: the calls that lead here from the entry, outermost first, each with its file.
        active: the functions that have not returned, outermost first.
        begun: the steps before each of them.
        importing: how many imports are active: what runs in them is no part of the path.
        expecting_failure: whether an import may fail here without harm.
        undecided: how many branches are around of which both arms run.
        enumerating: the view of all submodules that a loop is going through, one by one.
        on_yield: `Frame.on_yield` for the generator function that is entered next.
        sums: the value of an addition to a variable in a loop, by the addition's node.
        in_forward: the modules whose ``forward`` is active.
        entered_forwards: the modules whose ``forward`` was followed; it is followed once.
        tracked: the objects of which every use is noted.
        below: the tracked objects that each object is or has.
        on_meta: whether modules are built on the meta device; None where that is not known.
        seed_differs: whether each rank draws other random numbers.
        oldest_changed: the number of the oldest object of an import that changed since this was
            last reset; 0 for what is older than the import or has no number, such as a container.
        group: the state of the default process group, None where that is not known. A script
            starts without one. Code that is not read may initialize it at any time, and only
            `destroy_process_group` is taken to end it.
        environment: the environment variables that the program has set, none of those that tell
            ranks apart.
    """

    project: Project
    trace: Trace
    decisions: Decisions
    priorities: Priorities
    semantics: Semantics
    # Budgets
    allowed: int
    cut_functions: Container[ir.Function]
    steps: int = 0
    constants: int = 0
    cost: float = 0.0
    # What there is so far
    clock: int = 0
    serial: int = 0
    imported_serial: int = 0
    reached: set[ir.Node] = field(default_factory=set)
    receivers: dict[ir.Function, set[Object]] = field(default_factory=dict)
    live: dict[ir.ClassDef, Live] = field(default_factory=dict)
    until: ir.ClassDef | None = None
    eventful: set[ir.Node] = field(default_factory=set)
    too_long: list[ir.Function] = field(default_factory=list)
    shortened: bool = False
    scopes: dict[Unit, ModuleScope] = field(default_factory=dict)
    stars: dict[Scope, list[Path]] = field(default_factory=dict)
    sought: set[tuple[Scope, str]] = field(default_factory=set)
    # Where the path is
    guards: list[Guard] = field(default_factory=list)
    calls: list[tuple[str, ir.Node]] = field(default_factory=list)
    active: list[ir.Function] = field(default_factory=list)
    begun: dict[ir.Function, int] = field(default_factory=dict)
    importing: int = 0
    expecting_failure: bool = False
    undecided: int = 0
    enumerating: Object | None = None
    on_yield: Callable[[Value], None] | None = None
    sums: dict[ir.Expr, Value] = field(default_factory=dict)
    # What is known of modules and of the process
    in_forward: list[Object] = field(default_factory=list)
    entered_forwards: set[Object] = field(default_factory=set)
    tracked: set[Object] = field(default_factory=set)
    below: dict[Object, set[Object]] = field(default_factory=dict)
    on_meta: bool | None = False
    seed_differs: bool = False
    oldest_changed: int = NEVER
    group: Group | None = None
    environment: dict[str, Value] = field(default_factory=dict)

    # Running

    def evaluate(self, node: ir.Expr, frame: Frame) -> Value:
        self.steps += 1  # as `count_step` does, but for a call that is made at every expression
        if self.steps > self.allowed:
            self.end_or_extend()
        return self.semantics.evaluate[type(node)](self, node, frame)

    def run(self, body: Sequence[ir.Stmt], frame: Frame) -> Flow:
        for statement in body:
            self.count_step()
            flow = self.semantics.execute[type(statement)](self, statement, frame)
            if flow is not Flow.NEXT:
                return flow
        return Flow.NEXT

    # Budgets

    def count_step(self) -> None:
        self.steps += 1
        if self.steps > self.allowed:
            self.end_or_extend()

    def end_or_extend(self) -> None:
        """End the path, which is too long, unless it may have sharded and is allowed more steps."""
        most = self.project.budget.path_steps
        if self.allowed < most and self.may_have_sharded():
            self.allowed = most
            return
        self.shortened = self.allowed < self.project.budget.long_path_steps
        half = self.steps // 2
        # The innermost one: its callers may call something else on the next path.
        self.too_long = [each for each in self.active if self.begun[each] < half][-1:]
        self.end_path()

    def end_path(self) -> None:
        """End the path."""
        self.eventful.update(self.active)
        raise OutOfBudget

    def enter_function(self, function: ir.Function) -> None:
        """Note that a function starts; end the path if earlier ones were cut in it."""
        self.active.append(function)
        self.begun[function] = self.steps
        if function in self.cut_functions and not self.may_have_sharded():
            self.shortened = True
            self.end_path()

    def may_have_sharded(self) -> bool:
        return self.decisions.sharded is not None

    def charge(self, cost: float) -> None:
        self.cost += cost
        if self.cost > self.project.budget.path_cost:
            raise OutOfBudget

    # Time and place

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def site(self, node: ir.Node, frame: Frame) -> Site:
        return Site(frame.unit.path, node, tuple(self.calls), tuple(self.guards))

    def emit(self, event: Event) -> None:
        if not self.importing:
            self.trace.events.append(event)
            if self.decisions.sharded is None and _may_shard(event):
                self.decisions.sharded = len(self.decisions.made)
            if not isinstance(event, Divided):  # a division alone is no reason to follow code
                self.eventful.update(self.active)
            self.charge(SHARD_COST if isinstance(event, Shard) else 1)

    def note(
        self,
        kind: Callable[Concatenate[int, Site, P], Event],
        node: ir.Node,
        frame: Frame,
        *args: P.args,
        **keywords: P.kwargs,
    ) -> None:
        """Emit an event of a kind that happens at ``node`` now."""
        self.emit(kind(self.tick(), self.site(node, frame), *args, **keywords))

    def guard(self, test: Value, node: ir.Node, taken: bool, frame: Frame) -> Guard:
        """Return the branch on which ``test`` comes out as ``taken``."""
        if isinstance(node, ir.Not):
            node, taken = node.operand, not taken
            test = test.operands[0] if getattr(test, "op", "") == "not" else test  # type: ignore[union-attr]  # a Condition
        divergent = bool(test.taint & Taint.RANK)
        open_element = self.enumerating is not None and not isinstance(test, Const)
        progress = bool(test.taint & Taint.ELEMENT) or open_element
        ranks = ranks_of(test, taken)
        tests = rank_tests(test, node) if ranks != EVERY_RANK else ()
        sources = frozenset(rank_sources(test)) if tests else frozenset()
        return Guard(
            key_of(test),
            frame.unit.path,
            node,
            taken,
            divergent,
            progress,
            ranks=ranks,
            rank_tests=tests,
            rank_sources=sources,
        )

    def under(self, guards: Sequence[Guard]) -> Under:
        """Return a context in which everything depends on these branches."""
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
        """Create an object.

        Objects of imported modules are numbered apart, by negative numbers: what an import makes
        does not shift the numbers of the path.
        """
        if self.importing:
            serial = self.imported_serial = self.imported_serial - 1
        else:
            serial = self.serial = self.serial + 1
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
        """Create a submodule, an element or another view of an object."""
        made = self.new(Origin.PART, cls, taint=taint | whole.taint)
        made.parent, made.step = whole, step
        if whole.key is not None:
            made.key = self.interned(("part", whole.key, step))
        return made

    def interned(self, key: object) -> object:
        """Return a short stand-in for a key: keys made of keys would grow with every call."""
        if key is None:
            return None
        return ("key", self.project.keys.setdefault(key, next(self.project.numbers)))

    def note_change(self, value: Value | None = None) -> None:
        """Note a change of ``value``, or of something without a number."""
        number = value.serial if isinstance(value, Object) else 0
        self.oldest_changed = max(self.oldest_changed, min(number, 0))

    # Unread code

    def escape(self, node: ir.Node, frame: Frame, *values: Value) -> None:
        """Note that unknown code gets ``values`` and everything reachable from them.

        From here on nothing can be claimed about what was done to them: `Object.escaped` is the
        time, and a rule that needs an object unchanged compares it with the time of its event. A
        dict may get further entries, such as keyword arguments for a sharding call.
        Events that were seen remain evidence; only absence (nobody sharded this, nobody gathered
        it) is no longer known. An optimizer that escapes together with its model may have been
        given other parameters, which is an uncertain `Repoint`.
        """
        now = self.tick()
        had: set[Object] = set()
        grown: list[Mapping] = []
        for value in values:
            for item in contained(value):
                forget(item, self.unknown)
                if isinstance(item, StateDict):
                    item.escaped = True
                elif isinstance(item, Mapping):
                    grown.append(item)
            had.update(reachable(value))
        for item in had:
            self.note_change(item)
        if grown:
            self.note_change()
        for mapping in grown:
            if not mapping.rest:
                mapping.rest.append(self.unknown())
        self.charge(len(had) / OBJECTS_AT_COST)
        if had and not self.importing:
            self.trace.escapes.append(Escape(now, self.site(node, frame), frozenset(had)))
        for item in had:
            if item.escaped is None:
                item.escaped = now
            if any(capture.module in had for capture in item.captures):
                self.emit(Repoint(now, self.site(node, frame), item, certain=False))

    def note_unread_code(self) -> None:
        """Note that code may run that is not read: it can initialize the process group."""
        self.note_change()
        if self.group in GROUP_DOWN:
            self.group = None


def _may_shard(event: Event) -> bool:
    if isinstance(event, Call):
        return prepares_sharded(event) or has_sharded(event)
    return isinstance(event, Sharding)


def is_const(value: Value, constant: str | bool | None) -> bool:
    """True if a value is the constant; `1` and `True` are different constants."""
    return (
        isinstance(value, Const)
        and value.value == constant
        and (type(value.value) is type(constant))
    )
