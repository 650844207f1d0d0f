"""Abstract values: what an expression can be while a program is executed without being run.

Everything with an identity is an `Object`, whose kind is discovered by use: what is sharded is a
module, what is stepped an optimizer. Two names are aliases if they hold the same `Object`. Taints
say what a value depends on, which decides how a branch on it is executed.

The lattice has three levels:

- known: a constant, a symbol, a container, an object that the program allocated;
- one of several: a `Choice`, where a branch was not followed separately, or ``a or b``. `choice`
  joins: it flattens and merges values that are the same, and a single one stays itself;
- unknown: an `Object` of origin ``UNKNOWN`` or ``PARAMETER``. Anything may alias it.

Three queries take a value apart, and a rule picks the one that its claim needs: `may_be` gives
every alternative (for what has to hold of all of them, or keeps a fix from being made), `must_be`
the only one (for a setting), and `followed` the one on this path (for what an event happens to: a
finding needs one path on which it is true, and on that path nothing happens to the others).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingType
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.knowledge.calls import Generation, is_harmless
from fsdplint.knowledge.ranks import Role

if TYPE_CHECKING:
    from fsdplint.engine.project.unit import Deferred, Unit


class Taint(int):
    """What a value depends on, as bits.

    ``RANK``: the rank of the process; ``ELEMENT``: the element of a loop; ``LOCAL``: a number read
    from this rank's part of a tensor; ``OWN``: something that each process makes up, such as a
    random number. Plain integers, since taints are combined at every expression and enum flags are
    slow.
    """

    NONE: Taint
    RANK: Taint
    ELEMENT: Taint
    LOCAL: Taint
    OWN: Taint

    def __or__(self, other: int) -> Taint:
        return _TAINTS[int(self) | other]

    def __and__(self, other: int) -> Taint:
        return _TAINTS[int(self) & other]

    @property
    def divides(self) -> bool:
        """True if one path covers all outcomes of a test that depends on it.

        One path covers all ranks and all iterations of a loop, so a test of the rank, of the
        element or of a local number is never decided: both arms run on the same path, and guards
        say which ranks or iterations an event is for. A value that a process makes up is like any
        other unknown input: a run has one outcome, which the path decides.
        """
        return int(self) & ~int(Taint.OWN) != 0

    def without(self, other: Taint) -> Taint:
        return _TAINTS[int(self) & ~int(other)]


# Searches stop after so many values; what happens to the others is unknown.
MAX_CONTAINED = 1_000
MAX_REACHABLE = 400

_TAINTS = tuple(map(Taint, range(16)))
Taint.NONE, Taint.RANK, Taint.ELEMENT, _, Taint.LOCAL = _TAINTS[:5]
Taint.OWN = _TAINTS[8]


class Origin(Enum):
    """The origin of an object; only an allocated one surely has no aliases but those seen."""

    ALLOCATED = "allocated"
    PARAMETER = "parameter"
    UNKNOWN = "unknown"
    PART = "part"


@dataclass(slots=True, eq=False)
class Const:
    """A value that is known: a literal, or what is computed from literals."""

    value: object
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Symbol:
    """An object of a library, by canonical qualified name; "?" is an unknown attribute."""

    name: str
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Scope:
    """Variables of a function call, a class body or a module; parents are searched next."""

    names: dict[str, Value]
    parent: Scope | None
    unit: Unit


@dataclass(slots=True, eq=False)
class ModuleScope(Scope):
    """Variables of an imported module.

    Attributes:
        deferred: the statements that run when a name that they bind is first read.
        late: the variables that the deferred statements have bound so far.
    """

    deferred: MappingType[str, Deferred]
    late: dict[str, Value] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.names or name in self.deferred


@dataclass(slots=True, eq=False)
class UnitValue:
    """A module of the project, imported."""

    unit: Unit
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class FunctionValue:
    """A function of the project.

    Attributes:
        only: the guard of a decorator that lets only some ranks run it.
    """

    function: ir.Function
    scope: Scope
    owner: ClassValue | None = None
    taint: Taint = Taint.NONE
    only: Guard | None = None


@dataclass(slots=True, eq=False)
class ClassValue:
    """A class of the project.

    Attributes:
        library: the cached result of `class_names`.
    """

    node: ir.ClassDef
    scope: Scope
    bases: tuple[Value, ...]
    attrs: dict[str, Value]
    taint: Taint = Taint.NONE
    library: frozenset[str] | None = None

    def lineage(self, depth: int = 0) -> Iterator[ClassValue | Symbol]:
        """The class and its bases, depth first, library classes as symbols."""
        yield self
        for base in self.bases:
            base = followed(base)
            if isinstance(base, ClassValue) and depth < 12:
                yield from base.lineage(depth + 1)
            elif isinstance(base, Symbol):
                yield base

    def lookup(self, name: str) -> Value | None:
        for cls in self.lineage():
            if isinstance(cls, ClassValue) and name in cls.attrs:
                return cls.attrs[name]
        return None

    def opaque(self) -> bool:
        """True if a base is unknown code, which may define and shard anything."""
        return any(
            not isinstance(base, ClassValue)
            and not (isinstance(base, Symbol) and is_harmless(base.name))
            for cls in self.lineage()
            if isinstance(cls, ClassValue)
            for given in cls.bases
            for base in may_be(given)
        )


@dataclass(slots=True, eq=False)
class Method:
    """A function bound to a receiver; ``function`` is None for a library's or an unknown one.

    Attributes:
        source: the attribute expression that bound it.
    """

    receiver: Value
    name: str
    function: FunctionValue | None
    source: Site | None
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Partial:
    """A `functools.partial` of any callable.

    Attributes:
        site: where it is made, if a program writes its arguments there.
    """

    function: Value
    args: tuple[Value, ...]
    keywords: dict[str, Value]
    taint: Taint = Taint.NONE
    site: Site | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """A list, tuple, set or iterator.

    Attributes:
        items: the elements known one by one, in order.
        rest: elements of which only the kind is known (a loop's or a comprehension's).
    """

    items: list[Value]
    rest: list[Value] = field(default_factory=list)
    kind: str = "list"
    taint: Taint = Taint.NONE
    repeated: bool = False


@dataclass(slots=True, eq=False)
class Mapping:
    """A dict.

    Attributes:
        items: the values whose keys are known.
        rest: values under unknown keys.
        factory: makes the value of a key that is read and is not there, as in a ``defaultdict``.
    """

    items: dict[object, Value] = field(default_factory=dict)
    rest: list[Value] = field(default_factory=list)
    taint: Taint = Taint.NONE
    factory: Callable[[], Value] | None = None


@dataclass(slots=True, eq=False)
class Choice:
    """One of several values, where the arms of a branch were joined.

    Attributes:
        tests: per option, the condition under which it is that one, if these are known.
    """

    options: tuple[Value, ...]
    taint: Taint = Taint.NONE
    tests: tuple[Value, ...] = ()


@dataclass(slots=True, eq=False)
class Inner(Choice):
    """The module inside of an FSDP1 wrapper, which shares an `Object` with it.

    Calls of it run no hook of the wrapper.
    """


@dataclass(slots=True, eq=False)
class Parameters:
    """``module.parameters()`` and what is built from it: the tensors a module held at ``time``.

    Attributes:
        lazy: a generator, which takes the tensors only when it is consumed.
        filtered: only some of them, by a condition on the name.
        named: iterating gives (name, tensor) pairs.
    """

    module: Object
    time: int
    source: Site
    filtered: bool = False
    named: bool = False
    lazy: bool = False
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class StateDict:
    """The state of a sharded module or optimizer, each tensor of it this rank's slice.

    Attributes:
        generation: FSDP2's slices are DTensors; those of FSDP1's optimizers are plain, cut flat.
        element: one value of the dict rather than the dict.
        escaped: it was handed to unknown code, which may have gathered it in place.
        live: its tensors surely are the parameters' own memory, rather than copies.
    """

    owner: Object
    source: Site
    optimizer: Object | None = None
    element: bool = False
    escaped: bool = False
    live: bool = True
    taint: Taint = Taint.NONE
    generation: Generation = Generation.FSDP2


@dataclass(slots=True, eq=False)
class Tensor:
    """A parameter or gradient of ``module`` as it is at ``time``, or what is computed from it.

    Attributes:
        partial: how the ranks would have to combine their parts, e.g. "sum", if it is a number that
            was reduced from a shard; "" for a shard.
        reduced: where it was reduced.
        vague: of the operation that made it no more is known than that the result of one on a
            DTensor is a DTensor.
        source: the first operation on a parameter that it comes from, None for a parameter.
    """

    module: Object
    time: int
    partial: str = ""
    reduced: Site | None = None
    vague: bool = False
    source: Site | None = None
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Condition:
    """A truth value that is not known: ``op`` applied to ``operands``.

    ``op`` is "not", "and", "or", or a test such as "==" or "isinstance".

    Attributes:
        size: the number of tests in it.
        truths: cached outcomes by rank (see `interpreter.ranks`).
    """

    op: str
    operands: tuple[Value, ...]
    key: object
    taint: Taint = Taint.NONE
    size: int = 1
    truths: dict[int, bool | None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Super:
    """``super()``: looks attributes up behind ``owner`` in the lineage of ``receiver``."""

    receiver: Object
    owner: ClassValue
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Imported:
    """A name that an import binds, followed when it is first read.

    Attributes:
        expected_to_fail: the import is in a `try` that handles that the module is missing.
    """

    unit: Unit
    module: str
    level: int
    name: str | None
    expected_to_fail: bool = False
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Context:
    """The result of a call that only counts once it is entered, e.g. an FSDP1 state dict type."""

    name: str
    args: tuple[Value, ...]
    taint: Taint = Taint.NONE


@dataclass(slots=True, eq=False)
class Sharded:
    """One sharding call applied to an object; a test or an annotation that says so, if declared."""

    generation: Generation
    time: int
    site: Site
    declared: bool = False


@dataclass(slots=True, eq=False)
class Offered:
    """Objects that unknown code was given, of whose parameters its result may be the optimizer.

    Attributes:
        parameters: those among what it was given; none if it got a model, say.
        uses: which methods of an optimizer were called on the result.
    """

    parameters: tuple[Parameters, ...]
    time: int
    site: Site
    uses: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Object:
    """Anything with identity and attributes.

    Attributes:
        serial: its number on the path; two paths with the same decisions number alike.
        parent: the object this is an attribute, an element or a view of, reached by ``step``.
        key: the key of conditions on it; calls with equal arguments share one.
        repeated: it is a container filled by a loop or a comprehension.
        args: the arguments of its constructor.
        open: its constructor may have got more than these.
        escaped: the time it was first given to unknown code; see `PathState.escape`.
        unsharded: ``unshard()`` was called on it and ``reshard()`` was not.
        hooked_methods: methods registered to run with the forward hooks.
        captures: the parameters an optimizer was built on.
        offered: those that it may have been built on, if it is one.
        role: the number of this rank, the number of ranks and so on, if it surely is one.
        rank_source: the function or environment variable that the role is known from, or the
            function by which each process makes the value up, "" otherwise.
        differs: the rank, or what each process makes up, by which a text or path with it surely
            differs between ranks (see `interpreter.differing`).
        born: the time it was created.
        on_meta: it was built on the meta device, None where that depends.
        file: the file that it was read from, e.g. by ``torch.load``.
        made_by: the call of unknown code that returned it, with its file.
        shared: the dict that holds its attributes, if the program gave it one for all objects of a
            class (``self.__dict__ = self._shared_state``).
    """

    serial: int
    origin: Origin
    cls: ClassValue | Symbol | None = None
    site: Site | None = None
    parent: Object | None = None
    step: str = ""
    key: object = None
    taint: Taint = Taint.NONE
    repeated: bool = False
    attrs: dict[str, Value] = field(default_factory=dict)
    elements: dict[object, Value] = field(default_factory=dict)
    args: tuple[Value, ...] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    open: bool = False
    sharded: list[Sharded] = field(default_factory=list)
    escaped: int | None = None
    unsharded: bool = False
    hooked_methods: set[str] = field(default_factory=set)
    captures: list[Parameters] = field(default_factory=list)
    offered: Offered | None = None
    role: Role | None = None
    rank_source: str = ""
    differs: Object | None = None
    born: int = 0
    on_meta: bool | None = False
    file: Value | None = None
    made_by: tuple[str, ir.Call] | None = None
    shared: Mapping | None = None

    def ancestors(self) -> Iterator[Object]:
        """Yield the objects this is a part of, nearest first."""
        current = self.parent
        for _ in range(64):
            if current is None:
                return
            yield current
            current = current.parent

    def path(self) -> str:
        """Return how the object is reached from its root, e.g. ".encoder.layers[]"."""
        steps = [self.step, *(above.step for above in self.ancestors())]
        return "".join(reversed(steps))

    def generation(self) -> Generation | None:
        """Return which FSDP this object itself is a unit of, if any."""
        return self.sharded[-1].generation if self.sharded else None


Value = (
    Const
    | Symbol
    | UnitValue
    | FunctionValue
    | ClassValue
    | Method
    | Partial
    | Sequence
    | Mapping
    | Choice
    | Parameters
    | StateDict
    | Tensor
    | Condition
    | Super
    | Imported
    | Context
    | Object
)


@dataclass(slots=True, eq=False)
class Arguments:
    """Evaluated arguments; ``open`` when a starred one may add more.

    Attributes:
        partial: where a partial was made that some of them come from.
    """

    args: list[Value]
    keywords: dict[str, Value]
    open: bool = False
    partial: Site | None = None

    def get(self, position: int, keyword: str) -> Value | None:
        if keyword in self.keywords:
            return self.keywords[keyword]
        return self.args[position] if 0 <= position < len(self.args) else None

    def values(self) -> list[Value]:
        return [*self.args, *self.keywords.values()]


NONE = Const(None)


@overload
def followed(value: Value) -> Value: ...


@overload
def followed(value: None) -> None: ...


def followed(value: Value | None) -> Value | None:
    """Return the alternative of a choice, or of ``a or b``, that the path follows.

    A finding needs one feasible path, and where a branch was not followed separately the path is
    the one on which the first alternative with an identity was taken. The same choice is followed
    alike wherever it is read, so that events of one object stay together. Constants have no
    identity to follow: a choice of constants alone stays a choice, of which nothing is claimed.
    A tensor is followed only where nothing else may be there, such as what gathers it.
    """
    while True:
        options = () if value is None else _alternatives(value)
        if not options:
            return value
        telling = [option for option in options if not isinstance(option, Const)]
        if not telling:
            return must_be(value) or value
        plain = [option for option in telling if not isinstance(option, Tensor)]
        value = (plain or telling)[0]


def may_be(value: Value | None) -> tuple[Value, ...]:
    """Return everything that a value may be, none of it a choice; nothing if there is none."""
    if value is None:
        return ()
    options = _alternatives(value)
    return tuple(chain.from_iterable(map(may_be, options))) if options else (value,)


def must_be(value: Value | None) -> Value | None:
    """Return the only thing that a value can be, None if there are several or there is no value."""
    options = may_be(value)
    alike = all(same(option, options[0]) for option in options)
    return options[0] if options and alike else None


def _alternatives(value: Value) -> tuple[Value, ...]:
    """Return the alternatives of a choice, the preferred one first, and nothing for the rest."""
    if isinstance(value, Choice):
        return value.options
    if isinstance(value, Condition) and value.op in ("and", "or"):
        return value.operands if value.op == "or" else value.operands[::-1]
    return ()


def choice(options: list[Value], taint: Taint = Taint.NONE) -> Value:
    """Return one of ``options``, as a `Choice` unless all are the same.

    Joining is sound because nothing is lost: a choice has every option, flattened, and a query says
    whether it needs one of them (`followed`), any (`may_be`) or all (`must_be`). Values are only
    merged if they are the same object, or equal constants or symbols; two allocations of one class
    stay apart. Where one option differs by rank, so does the whole.
    """
    flat: dict[object, Value] = {}
    for option in options:
        for inner in option.options if type(option) is Choice else (option,):
            flat.setdefault(_sameness(inner), inner)
    values = tuple(flat.values())
    if len(values) == 1:
        return values[0]
    return Choice(values, taint | (taint_of(*options) & Taint.RANK))


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """A value as a key: equal to itself alone.

    It holds the value, since the `id` of one that is collected is another's soon.
    """

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def key_of(value: Value) -> object:
    """Return the key that conditions on ``value`` are remembered by within a path."""
    if isinstance(value, Const):
        return ("const", type(value.value).__name__, value.value)
    if isinstance(value, Symbol):
        return ("symbol", value.name)
    if isinstance(value, Object):
        return value.key if value.key is not None else ("object", value.serial)
    if isinstance(value, Condition):
        return value.key
    return ("value", Identity(value))


def same(a: Value, b: Value) -> bool:
    return a is b or _sameness(a) == _sameness(b)


def _sameness(value: Value) -> object:
    """Return a key that two values share if they are one, or equal constants or symbols."""
    if isinstance(value, Inner):
        return ("inner", key_of(value.options[0]))
    return key_of(value) if isinstance(value, (Const, Symbol)) else Identity(value)


def taint_of(*values: Value | None) -> Taint:
    taint = Taint.NONE
    for value in values:
        if value is not None:
            taint |= value.taint
    return taint


def contained(value: Value) -> Items[Value]:
    """Return ``value`` and the values that it holds as a container, partial or bound method.

    Each is there once, and at most `MAX_CONTAINED` are.
    """
    if type(value) not in _INNER:
        return (value,)
    found: dict[int, Value] = {}
    stack = [value]
    while stack and len(found) < MAX_CONTAINED:
        current = stack.pop()
        if id(current) not in found:
            found[id(current)] = current
            inner = _INNER.get(type(current))
            if inner is not None:
                stack.extend(reversed(inner(current)))
    return list(found.values())


_INNER: dict[type, Callable[[Any], list[Value]]] = {
    Sequence: lambda value: [*value.items, *value.rest],
    Mapping: lambda value: [*value.items.values(), *value.rest],
    Choice: lambda value: list(value.options),
    Inner: lambda value: list(value.options),
    Method: lambda value: [value.receiver],
    Partial: lambda value: [value.function, *value.args, *value.keywords.values()],
    Context: lambda value: list(value.args),
}


def reachable(value: Value) -> list[Object]:
    """Return the objects that code given ``value`` can reach: contained ones and attributes."""
    found: dict[Object, None] = {}
    stack = [item for item in contained(value) if isinstance(item, Object)]
    while stack and len(found) < MAX_REACHABLE:
        current = stack.pop()
        if current in found:
            continue
        found[current] = None
        for held in chain(current.attrs.values(), current.elements.values(), current.args):
            if type(held) is Object:
                stack.append(held)
            elif type(held) in _INNER:
                stack.extend([item for item in contained(held) if type(item) is Object])
    return list(found)


def read_from(value: Value) -> Object | None:
    """Return the object read from a file that ``value`` is part of, if it is unchanged."""
    if not isinstance(value, Object) or value.escaped is not None or value.sharded:
        return None
    return next((whole for whole in (value, *value.ancestors()) if whole.file is not None), None)


def class_names(value: ClassValue | Symbol | None) -> frozenset[str]:
    """Return the canonical names of the library classes among a class and its bases."""
    if isinstance(value, Symbol):
        return frozenset((value.name,))
    if isinstance(value, ClassValue):
        if value.library is None:
            symbols = (cls.name for cls in value.lineage() if isinstance(cls, Symbol))
            value.library = frozenset(symbols)
        return value.library
    return frozenset()
