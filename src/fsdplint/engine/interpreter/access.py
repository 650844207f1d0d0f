"""Reading an attribute or an element of a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter import tensors
from fsdplint.engine.interpreter.comparison import class_name, compare, exact_class
from fsdplint.engine.interpreter.differing import differing, sliced
from fsdplint.engine.interpreter.elements import (
    BY_RANK,
    element_of,
    fill_missing,
    hashable,
    named_items,
)
from fsdplint.engine.interpreter.events import Unwrap
from fsdplint.engine.interpreter.frameworks import class_of_part
from fsdplint.engine.interpreter.functions import decorators, invoke
from fsdplint.engine.interpreter.modules import is_unit
from fsdplint.engine.interpreter.names import member_of
from fsdplint.engine.interpreter.state import Frame, PathState, is_const
from fsdplint.engine.interpreter.values import (
    Arguments,
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Identity,
    Inner,
    Mapping,
    Method,
    Object,
    Origin,
    Parameters,
    Partial,
    Sequence,
    StateDict,
    Super,
    Symbol,
    Taint,
    UnitValue,
    Value,
    choice,
    class_names,
    followed,
    key_of,
    taint_of,
)
from fsdplint.knowledge.calls import (
    ABSENT_FROM_FSDP2,
    COMPILED,
    FLAT_PARAMETER,
    RANK_ATTRIBUTES,
    RANK_VARIABLES,
    WRAPPED,
    Generation,
)
from fsdplint.knowledge.checkpoints import PLAIN_ENTRIES
from fsdplint.knowledge.data import ATTRIBUTES_BY_ARGUMENT, ROWS
from fsdplint.knowledge.launch import RECORDS
from fsdplint.knowledge.names import AUTOGRAD_FUNCTIONS, canonical
from fsdplint.knowledge.ranks import ENVIRONMENT, KEEPING_ATTRIBUTES, VARIABLES, Role, role_of

# Attributes that are taken for bound methods even where no class is known to define them.
_BOUND_METHODS = frozenset(
    {"forward", "no_sync", "parameters", "named_parameters", "state_dict", "step"}
)

# ``torch.optim.__dict__[name]`` is ``getattr(torch.optim, name)``.
_NAMESPACE = ".__dict__"
_METHODS_OF_FSDP1 = ABSENT_FROM_FSDP2 - WRAPPED - FLAT_PARAMETER


def attribute(state: PathState, node: ir.Attribute, frame: Frame) -> Value:
    return read(state, state.evaluate(node.value, frame), node.attr, node, frame)


def read(state: PathState, value: Value, name: str, node: ir.Node, frame: Frame) -> Value:
    """Return the attribute ``name`` of a value; it is created for an object of unknown class."""
    value = followed(value)
    tensor = tensors.attribute(state, value, name)
    if tensor is not None:
        return tensor
    if name == "__name__" and (named := class_name(value)) is not None:
        return Const(named)
    if isinstance(value, Symbol):
        return Symbol(canonical(f"{value.name}.{name}"))
    if isinstance(value, UnitValue):
        return member_of(state, value.unit, name) or state.unknown(
            key=("member", value.unit.path, name)
        )
    if isinstance(value, Object):
        return _object_attribute(state, value, name, node, frame)
    if isinstance(value, Super):
        return _super_attribute(value, name)
    if isinstance(value, ClassValue):
        found = value.lookup(name)
        if name == "apply" and found is None and class_names(value) & AUTOGRAD_FUNCTIONS:
            return _applied(state, value)
        return (
            state.unknown(key=("class", Identity(value), name))
            if found is None
            else _bound_to_class(found, value)
        )
    return state.unknown(value.taint, key=("attr", key_of(value), name))


def _applied(state: PathState, function: ClassValue) -> Value:
    """Return what ``apply`` of an autograd function calls: its forward, mostly with a context."""
    forward = function.lookup("forward")
    if not isinstance(forward, FunctionValue):
        return state.unknown(key=("class", Identity(function), "apply"))
    if function.lookup("setup_context") is not None:
        return forward
    return Partial(forward, (state.unknown(),), {})


def _bound_to_class(found: Value, cls: ClassValue) -> Value:
    if isinstance(found, FunctionValue) and "classmethod" in decorators(found.function):
        return Method(cls, found.function.name, found, None)
    return found


def _object_attribute(
    state: PathState, value: Object, name: str, node: ir.Node, frame: Frame
) -> Value:
    """Return an attribute of an object: assigned, of its class, a named part, or a new part."""
    if name in value.attrs:
        return value.attrs[name]
    if name == "__dict__" and value.shared is not None:
        return value.shared
    if name == "__class__" and (cls := exact_class(value)) is not None:
        return cls
    found = value.cls.lookup(name) if isinstance(value.cls, ClassValue) else None
    if isinstance(found, FunctionValue):
        return _bind(state, value, found, node, frame)
    if found is not None and value.origin is Origin.PART and class_names(value.cls) & RECORDS:
        value.attrs[name] = open_field(state, value, name)
        return value.attrs[name]
    if found is not None:
        return found
    named = named_items(value)
    if name in named:
        return named[name]
    fsdp1 = value.generation() is Generation.FSDP1
    if name in _BOUND_METHODS or (fsdp1 and name in _METHODS_OF_FSDP1):
        return Method(value, name, None, state.site(node, frame))
    taint = Taint.RANK if name in RANK_ATTRIBUTES else Taint.NONE
    if name in WRAPPED and value.sharded:
        if fsdp1:
            return Inner((value,), value.taint)
        state.note(Unwrap, node, frame, value, name)
        return value
    if name == COMPILED:
        return value  # what `torch.compile` gives stands for the module itself
    if name in FLAT_PARAMETER and is_unit(value):
        state.note(Unwrap, node, frame, value, name)
    argument, cls = _constructor_argument(value, name)
    if argument is not None:
        return argument
    made = value.attrs[name] = state.part(value, f".{name}", taint=taint)
    made.role, made.cls = library_role(value, name), cls or class_of_part(value, name)
    if name in KEEPING_ATTRIBUTES:
        made.differs = differing(value)
    if made.role not in (None, Role.SIZE):
        made.taint |= Taint.RANK
    return made


def _constructor_argument(value: Object, name: str) -> tuple[Value | None, Symbol | None]:
    """Return the constructor's argument that an attribute holds, or the class of its default."""
    cls = value.cls.name if isinstance(value.cls, Symbol) else ""
    place = ATTRIBUTES_BY_ARGUMENT.get((cls, name))
    if place is None or value.open or value.origin is not Origin.ALLOCATED:
        return None, None
    given = Arguments(list(value.args), value.keywords).get(place[0], name)
    return (None, Symbol(place[1])) if given is None or is_const(given, None) else (given, None)


def open_field(state: PathState, owner: Object, name: str) -> Object:
    """Return a field whose value is not known, of the class of its default if that is a record."""
    default = followed(owner.cls.lookup(name)) if isinstance(owner.cls, ClassValue) else None
    cls = default.cls if isinstance(default, Object) else None
    if isinstance(default, Object) and (factory := default.keywords.get("default_factory")):
        made = followed(factory)
        cls = made if isinstance(made, ClassValue) else None
    return state.part(owner, f".{name}", cls if class_names(cls) & RECORDS else None)


def _bind(
    state: PathState, value: Object, found: FunctionValue, node: ir.Node, frame: Frame
) -> Value:
    marks = decorators(found.function)
    if marks & {"property", "cached_property"}:
        return invoke(state, found, [value], {}, frame, node)
    if "staticmethod" in marks:
        return found
    receiver = value.cls if "classmethod" in marks and value.cls is not None else value
    return Method(receiver, found.function.name, found, state.site(node, frame))


def setter_name(function: ir.Function) -> str | None:
    """Return the name in the class of the function that assigns to a property, if it is one.

    It is no identifier: ``@value.setter`` leaves the property bound to its own name.
    """
    for decorator in function.decorators:
        if isinstance(decorator, ir.Attribute) and decorator.attr in ("setter", "deleter"):
            named = decorator.value
            if isinstance(named, ir.Name) and named.id == function.name:
                return f"{function.name}.{decorator.attr}"
    return None


def set_by_property(
    state: PathState, owner: Object, name: str, value: Value, node: ir.Node, frame: Frame
) -> bool:
    """Assign to an attribute through its property; return whether it has a setter."""
    found = owner.cls.lookup(f"{name}.setter") if isinstance(owner.cls, ClassValue) else None
    if not isinstance(found, FunctionValue):
        return False
    invoke(state, found, [owner, value], {}, frame, node)
    return True


def _super_attribute(value: Super, name: str) -> Value:
    lineage = (
        list(value.receiver.cls.lineage()) if isinstance(value.receiver.cls, ClassValue) else []
    )
    behind = lineage[lineage.index(value.owner) + 1 :] if value.owner in lineage else []
    for cls in behind:
        if isinstance(cls, ClassValue) and isinstance(cls.attrs.get(name), FunctionValue):
            found = cls.attrs[name]
            assert isinstance(found, FunctionValue)
            return Method(value.receiver, name, found, None)
    return Method(value.receiver, name, None, None)


def library_role(value: Object, name: str, *, called: bool = False) -> Role | None:
    """Return what an attribute or a method of a library's object says about the rank."""
    roles = (role_of(cls, name, called=called) for cls in class_names(value.cls))
    return next(filter(None, roles), None)


def subscript(state: PathState, node: ir.Subscript, frame: Frame) -> Value:
    """Evaluate ``value[index]``; a slice by the rank differs between ranks."""
    value = followed(state.evaluate(node.value, frame))
    index = state.evaluate(node.index, frame)
    # Only for a slice: an element chosen by the rank may have parts that are equal on all ranks.
    is_slice = isinstance(node.index, ir.Opaque)
    tensors.operated(state, "[]", (value, index), node, frame)
    if is_slice and isinstance(value, Object) and taint_of(index) & Taint.RANK:
        return _rows_of_rank(state, value)
    if is_slice and (source := sliced(value)) is not None:
        made = state.unknown(value.taint, key=("item", key_of(value), key_of(index)))
        made.differs = source
        return made
    return item(state, value, index)


def item(state: PathState, value: Value, index: Value) -> Value:
    """Return the element of a value at an index."""
    key = index.value if isinstance(index, Const) else None
    if isinstance(value, Sequence) and isinstance(key, int) and not value.rest:
        return value.items[key] if -len(value.items) <= key < len(value.items) else state.unknown()
    if isinstance(value, Sequence):
        return element_of(state, value)
    if isinstance(value, Mapping):
        fill_missing(state, value, index)
        return mapping_item(state, value, index)
    if isinstance(value, StateDict):
        return entry(state, value, index)
    if isinstance(value, Parameters):
        return value
    if tensors.is_of_unit(value) and (whole := tensors.tensor_of(state, value)) is not None:
        return tensors.vague(whole, "[]") or state.unknown()
    if isinstance(value, Symbol) and value.name == ENVIRONMENT:
        return environment(state, index)
    if isinstance(value, Symbol) and value.name.endswith(_NAMESPACE):
        name = index.value if isinstance(index, Const) else "?"
        return Symbol(canonical(f"{value.name.removesuffix(_NAMESPACE)}.{name}"))
    if isinstance(value, Object):
        return _object_item(state, value, index)
    return state.unknown(taint_of(value, index), key=("item", key_of(value), key_of(index)))


def entry(state: PathState, held: StateDict, key: Value) -> Value:
    """Return the value in a state dict under one key."""
    whole = held.optimizer is not None and not held.element
    if whole and isinstance(key, Const) and key.value in PLAIN_ENTRIES:
        return state.unknown()
    return replace(held, element=True, escaped=False, taint=Taint.NONE)


def mapping_item(state: PathState, value: Mapping, index: Value) -> Value:
    """Return the value under a key, or a choice of all values if the key is unknown."""
    if isinstance(index, Const) and hashable(index.value) in value.items:
        return value.items[hashable(index.value)]
    if isinstance(index, Const):
        return choice(list(value.rest)) if value.rest else state.unknown()
    options = [*value.items.values(), *value.rest]
    if len(value.items) > 1 and not value.rest:
        tests = [compare("Equal", index, Const(key)) for key in value.items]
        return Choice(tuple(options), taint_of(index), tuple(tests))
    return choice(options) if options else state.unknown(taint_of(index))


# From this many entries on, one of those without an event stands for the others.
_MANY_ENTRIES = 16


def entries(
    state: PathState, table: Choice, node: ir.Node
) -> Iterator[tuple[Value, Value, bool, object]]:
    """Yield all entries of a table but the last, each with its test and whether it has events.

    The last member is the place to decide at. It is one for entries of which a path for each would
    say nothing more.
    """
    many = len(table.options) >= _MANY_ENTRIES
    tested = zip(table.options[:-1], table.tests[:-1], strict=False)
    for index, (option, test) in enumerate(tested):
        code = tuple(_code_in(option))
        leads = bool(code) and state.priorities.may_shard(code)
        held: object = "no events" if many and code and not leads else code or index
        yield option, test, leads, (node, held, leads)


def _code_in(option: Value) -> Iterator[ir.Node]:
    """Yield the functions and classes that an entry of a table is, or holds."""
    inner = followed(option)
    for each in inner.items if isinstance(inner, Sequence) else (inner,):
        value = followed(each)
        if isinstance(value, FunctionValue):
            yield value.function
        elif isinstance(value, ClassValue):
            yield value.node


def environment(state: PathState, index: Value) -> Value:
    """Return the value of an environment variable."""
    name = index.value if isinstance(index, Const) else None
    if isinstance(name, str) and name in state.environment:
        return state.environment[name]
    taint = Taint.RANK if name in RANK_VARIABLES else Taint.NONE
    made = state.unknown(taint, key=("environment", key_of(index)))
    made.role, made.rank_source = VARIABLES.get(str(name)), str(name)
    return made


def set_environment(state: PathState, index: Value, value: Value) -> None:
    """Note that the program sets an environment variable: it is there from here on.

    In one of two arms that both run it may be another's; then it is there with an unknown value.
    """
    name = index.value if isinstance(index, Const) else None
    if not isinstance(name, str) or name in VARIABLES or name in RANK_VARIABLES:
        return
    if state.undecided or not isinstance(value, Const):
        value = state.unknown(taint_of(value))
        value.origin = Origin.ALLOCATED
    state.environment[name] = value


def _object_item(state: PathState, value: Object, index: Value) -> Value:
    """Return an element of an object; the same key gives the same element again."""
    if isinstance(index, Const):
        key: object = hashable(index.value)
        if key in value.elements:
            return value.elements[key]
        if isinstance(key, str) and key in named_items(value):
            return named_items(value)[key]
        if isinstance(key, str):
            split = value.cls if ROWS in class_names(value.cls) else None
            made = state.part(value, f"[{key!r}]", split, index.taint)
            value.elements[key] = made
            return made
        known = value.args[0] if value.args else None
        if isinstance(known, Sequence) and not known.rest:
            return item(state, known, index)
    return element_of(state, value)


def _rows_of_rank(state: PathState, value: Object) -> Value:
    """Return what a slice that starts at the rank takes of ``value``."""
    element = element_of(state, value)
    if not isinstance(element, Object) or element.cls:
        return element
    if BY_RANK not in value.elements:
        value.elements[BY_RANK] = state.part(value, "[]", taint=element.taint | Taint.RANK)
    return value.elements[BY_RANK]
