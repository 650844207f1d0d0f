"""Reading an attribute of a value."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter import tensors
from fsdplint.engine.interpreter.elements import named_items
from fsdplint.engine.interpreter.events import Unwrap
from fsdplint.engine.interpreter.functions import decorators, invoke
from fsdplint.engine.interpreter.names import member_of
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    ClassValue,
    FunctionValue,
    Identity,
    Inner,
    Method,
    Object,
    Super,
    Symbol,
    Taint,
    UnitValue,
    Value,
    class_names,
    followed,
    key_of,
)
from fsdplint.knowledge.calls import ABSENT_FROM_FSDP2, RANK_ATTRIBUTES, WRAPPED, Generation
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.ranks import ATTRIBUTES, Role

# Attributes that are taken for bound methods even where no class is known to define them.
_BOUND_METHODS = frozenset(
    {"forward", "no_sync", "parameters", "named_parameters", "state_dict", "step"}
)


def attribute(state: PathState, node: ir.Attribute, frame: Frame) -> Value:
    return read(state, state.evaluate(node.value, frame), node.attr, node, frame)


def read(state: PathState, value: Value, name: str, node: ir.Node, frame: Frame) -> Value:
    """Return the attribute ``name`` of a value; it is created for an object of unknown class."""
    value = followed(value)
    tensor = tensors.attribute(state, value, name)
    if tensor is not None:
        return tensor
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
        return (
            state.unknown(key=("class", Identity(value), name))
            if found is None
            else _bound_to_class(found, value)
        )
    return state.unknown(value.taint, key=("attr", key_of(value), name))


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
    found = value.cls.lookup(name) if isinstance(value.cls, ClassValue) else None
    if isinstance(found, FunctionValue):
        return _bind(state, value, found, node, frame)
    if found is not None:
        return found
    named = named_items(value)
    if name in named:
        return named[name]
    fsdp1 = value.generation() is Generation.FSDP1
    if name in _BOUND_METHODS or (fsdp1 and name in ABSENT_FROM_FSDP2 - WRAPPED):
        return Method(value, name, None, state.site(node, frame))
    taint = Taint.RANK if name in RANK_ATTRIBUTES else Taint.NONE
    if name in WRAPPED and value.sharded:
        if fsdp1:
            return Inner((value,), value.taint)
        state.emit(Unwrap(state.tick(), state.site(node, frame), value, name))
        return value
    made = value.attrs[name] = state.part(value, f".{name}", taint=taint)
    made.role = _role_of_attribute(value, name)
    if made.role not in (None, Role.SIZE):
        made.taint |= Taint.RANK
    return made


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


def _role_of_attribute(value: Object, name: str) -> Role | None:
    """Return what an attribute of a library's object says about the rank."""
    roles = [ATTRIBUTES.get(cls, {}) for cls in class_names(value.cls)]
    return next((found[name] for found in roles if name in found), None)
