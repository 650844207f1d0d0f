"""Events on one path through a program, in order: the trace that facts are read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Arguments,
    Choice,
    Const,
    Mapping,
    Object,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Tensor,
    Value,
    followed,
    must_be,
)
from fsdplint.knowledge.calls import Generation


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """Anything that is recorded of a path, with its time and its place."""

    time: int
    site: Site


@dataclass(frozen=True, slots=True, eq=False)
class Shard(Occurrence):
    """A sharding call on ``module``.

    Attributes:
        keeps_parameters: the original Parameters stay the ones to train (FSDP1 with
            ``use_orig_params=True``), None where an argument is unknown.
        wraps_children: an FSDP1 policy shards submodules too, None where it is not known.
        keywords: the keyword arguments, those of ``**`` and of a partial included.
        strategy: FSDP1's ``sharding_strategy``, None where none is given.
        positional: the arguments without a keyword, the module included.
        open: a starred argument may add more.
        partial: where a partial was made that is called.
    """

    generation: Generation
    module: Object
    keeps_parameters: bool | None
    wraps_children: bool | None
    call: ir.Call
    keywords: dict[str, Value] = field(default_factory=dict)
    strategy: Value | None = None
    positional: tuple[Value, ...] = ()
    open: bool = False
    partial: Site | None = None

    @property
    def listed(self) -> bool:
        """True if it is given a list of modules, which become one unit together."""
        given = self.positional[0] if self.positional else self.keywords.get("module")
        return given is not None and isinstance(followed(given), Sequence)

    @property
    def may_leave_out(self) -> bool:
        """True if an argument may keep parameters of the module from being sharded."""
        given = [must_be(v) for name, v in self.keywords.items() if name.startswith("ignored")]
        return self.open or not all(isinstance(v, Const) and v.value is None for v in given)

    @property
    def cuts_flat(self) -> bool:
        """True if it is FSDP1's, with a strategy that surely splits the parameters."""
        if self.generation is not Generation.FSDP1:
            return False
        strategy = self.strategy
        if strategy is None:
            return not self.open
        return isinstance(strategy, Symbol) and not strategy.name.endswith("NO_SHARD")


@dataclass(frozen=True, slots=True, eq=False)
class Declared(Occurrence):
    """The code says that ``module`` is a unit: its annotation, or else a test of its class.

    With what arguments it was sharded is not known.
    """

    generation: Generation
    module: Object
    annotated: bool
    wraps_children: bool | None = None
    keywords: dict[str, Value] = field(default_factory=dict)
    strategy: Value | None = None


# From such an event on, a module is known to be a unit.
Sharding = Shard | Declared


@dataclass(frozen=True, slots=True, eq=False)
class BuildOptimizer(Occurrence):
    """An optimizer is constructed on the parameters in ``captures``."""

    optimizer: Object
    captures: tuple[Parameters, ...]
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class Repoint(Occurrence):
    """The optimizer's parameter groups are written, or it is prepared jointly with its model.

    Attributes:
        certain: False when unknown code got both, and may have done so.
    """

    optimizer: Object
    certain: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Call(Occurrence):
    """A call that `knowledge` says to watch, whatever else it does.

    Attributes:
        name: a function's canonical name, a method's own name, or "forward" for a module's call.
        receiver: what a method or a module's call is on, None for a function.
        names: by what names the calling function knows modules and optimizers, for calls that
            take or give state.
        destroyed: whether the process group has surely been destroyed before.
    """

    name: str
    receiver: Value | None
    arguments: Arguments
    result: Value
    names: dict[str, Object] = field(default_factory=dict)
    destroyed: bool = False

    def argument(self, position: int, keyword: str) -> Value | None:
        """Return the followed argument, None if it is not given or not known to be."""
        found = self.arguments.get(position, keyword)
        return None if found is None else followed(found)


@dataclass(frozen=True, slots=True, eq=False)
class DirectForward(Occurrence):
    """``.forward`` of ``module`` called without its hooks; ``source`` is the attribute."""

    source: Site
    module: Object


@dataclass(frozen=True, slots=True, eq=False)
class MethodCall(Occurrence):
    """A method of the project's own, called on a sharded module outside of its forward.

    Attributes:
        source: the attribute that names the method.
        hooked: it is registered, or may be, to run with the forward hooks.
    """

    source: Site
    module: Object
    name: str
    hooked: bool


@dataclass(frozen=True, slots=True, eq=False)
class Unwrap(Occurrence):
    """``module.module`` or the like, read from an FSDP2 unit, which has no such attribute."""

    module: Object
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class NoSync(Occurrence):
    """``module.no_sync()`` on an FSDP2 unit, which has no such method."""

    module: Object


@dataclass(frozen=True, slots=True, eq=False)
class PlainWrite(Occurrence):
    """A file written with whatever is in ``value``, by the call ``function``."""

    function: str
    value: Value
    target: Value | None
    states: tuple[StateDict, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Store(Occurrence):
    """An attribute assigned to a module or a parameter, ``setattr`` and registration included.

    Attributes:
        owner: the module, or the parameters that a loop runs through.
    """

    owner: Value
    name: str
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Divided(Occurrence):
    """``value`` divided ``by`` another; ``result`` is the same object where that is in place."""

    value: Object
    by: Value
    result: Value


Event = (
    Store
    | Divided
    | Shard
    | Declared
    | BuildOptimizer
    | Repoint
    | Call
    | DirectForward
    | MethodCall
    | NoSync
    | Unwrap
    | PlainWrite
)
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, eq=False)
class Escape(Occurrence):
    """A call of unknown code that got hold of ``objects``, directly or through their attributes."""

    objects: frozenset[Object]


@dataclass(frozen=True, slots=True, eq=False)
class Read(Occurrence):
    """The number in ``tensor`` is read, of which this rank has only its own part."""

    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Occurrence):
    """An operation on parameters or gradients of modules, or on what is computed from them.

    It is outside of all forward passes, in which parameters are whole.

    Attributes:
        name: a method's own name, a function's canonical one, that of an operator with "=" if it is
            in place, "[]", "[]=", or "format".
        operands: all that it gets.
        held: the tensors of modules that each operand is, or holds.
    """

    name: str
    operands: tuple[Value, ...]
    held: tuple[tuple[Tensor, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Use(Occurrence):
    """A use of tracked objects, or of parts of them, other than in the program's own code.

    Attributes:
        name: the function or method that is given them, "=" for an assignment, "?" for an unknown
            callee.
        objects: the tracked objects that it concerns.
        given: those that are given as a whole, and not only a part of them.
        parts: all that is given, where no tracked object is given as a whole.
    """

    name: str
    objects: frozenset[Object]
    given: frozenset[Object]
    parts: frozenset[Object] = frozenset()


@dataclass(slots=True, eq=False)
class Trace:
    """One path through one entry.

    Attributes:
        keys: the long keys of conditions, each with the number that stands for it in others.
        escapes: the objects that unknown code was given, which no rule reports by themselves.
        reads: where this rank's part of a number was read.
        operations: those on tensors of modules, in order.
        combined: when such numbers went to code that may combine those of all ranks.
        uses: the uses of tracked objects, such as a module whose weights are not initialized yet.
        called: the functions and methods of libraries and of unknown code that were called, in
            order: the time, and the name ("?" where that is not known).
        agreed: the calls that made up values on each rank which were given to code whose name hints
            that all ranks have the same value after it.
        picked: values that a generator yields only under a test; a loop over the generator need
            not reach them in each iteration.
        decisions: the conditions that were decided, with the outcome, in order.
        inside: the calls of the module inside an FSDP1 wrapper, and of its methods.
        complete: False when a budget ended the path early.
        method_code: where the functions stand that a method ran which nothing calls; None for the
            path of a program. Findings are only wanted in there.
        method_start: when the first of these was called.
        _selected: results of earlier queries, with the number of events that they cover.
    """

    entry: str
    path: str
    keys: dict[object, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    decisions: list[tuple[object, bool]] = field(default_factory=list)
    complete: bool = True
    escapes: list[Escape] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    combined: list[int] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    called: list[tuple[int, str]] = field(default_factory=list)
    agreed: set[ir.Node] = field(default_factory=set)
    picked: set[Object] = field(default_factory=set)
    inside: set[Site] = field(default_factory=set)
    method_code: set[tuple[str, int, int]] | None = None
    method_start: int = 0
    _selected: dict[object, tuple[int, list[Any]]] = field(default_factory=dict)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, in order."""
        return self._select(kind, lambda event: isinstance(event, kind))

    def units(self) -> list[Sharding]:
        """Return what makes modules units, or says that they are, in order."""
        return self._select(Sharding, lambda event: isinstance(event, Sharding))

    def calls(self, *names: str) -> list[Call]:
        """Return the watched calls of these names, in order."""
        return self._select(names, lambda event: isinstance(event, Call) and event.name in names)

    def _select(self, key: object, wanted: Callable[[Event], bool]) -> list[Any]:
        seen, found = self._selected.get(key, (0, []))
        if seen < len(self.events):
            found = [*found, *filter(wanted, self.events[seen:])]
            self._selected[key] = len(self.events), found
        return list(found)


def states_in(value: Value, depth: int = 0) -> tuple[StateDict, ...]:
    """Return the sharded state that is surely in ``value``: in every option of a choice."""
    if isinstance(value, StateDict):
        return () if value.escaped else (value,)
    if depth > 6:
        return ()
    if isinstance(value, Choice):
        found = [states_in(option, depth + 1) for option in value.options]
        return found[0] if all(found) else ()
    if isinstance(value, (Mapping, Sequence)):
        items = value.items.values() if isinstance(value, Mapping) else value.items
        known = [state for item in items for state in states_in(item, depth + 1)]
        loose = [states_in(item, depth + 1) for item in value.rest]
        if loose and all(loose):
            known.extend(loose[0])
        return tuple(known)
    return ()
