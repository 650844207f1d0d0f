"""Reading an element of a container."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter.comparison import compare
from fsdplint.engine.interpreter.elements import BY_RANK, element_of, hashable, named_items
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Mapping,
    Object,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Value,
    choice,
    followed,
    key_of,
    taint_of,
)
from fsdplint.knowledge.calls import RANK_VARIABLES
from fsdplint.knowledge.checkpoints import PLAIN_ENTRIES
from fsdplint.knowledge.ranks import VARIABLES


def subscript(state: PathState, node: ir.Subscript, frame: Frame) -> Value:
    """Evaluate ``value[index]``; a slice by the rank differs between ranks."""
    value = followed(state.evaluate(node.value, frame))
    index = state.evaluate(node.index, frame)
    # Only for a slice: an element chosen by the rank may have parts that are equal on all ranks.
    sliced = isinstance(node.index, ir.Opaque) and isinstance(value, Object)
    if sliced and isinstance(value, Object) and taint_of(index) & Taint.RANK:
        return _rows_of_rank(state, value)
    return item(state, value, index)


def item(state: PathState, value: Value, index: Value) -> Value:
    """Return the element of a value at an index."""
    key = index.value if isinstance(index, Const) else None
    if isinstance(value, Sequence) and isinstance(key, int) and not value.rest:
        return value.items[key] if -len(value.items) <= key < len(value.items) else state.unknown()
    if isinstance(value, Sequence):
        return element_of(state, value)
    if isinstance(value, Mapping):
        return mapping_item(state, value, index)
    if isinstance(value, StateDict):
        return entry(state, value, index)
    if isinstance(value, Parameters):
        return value
    if isinstance(value, Symbol) and value.name == "os.environ":
        return environment(state, index)
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


def environment(state: PathState, index: Value) -> Value:
    """Return the value of an environment variable."""
    name = index.value if isinstance(index, Const) else None
    taint = Taint.RANK if name in RANK_VARIABLES else Taint.NONE
    made = state.unknown(taint, key=("environment", key_of(index)))
    made.role, made.rank_source = VARIABLES.get(str(name)), str(name)
    return made


def _object_item(state: PathState, value: Object, index: Value) -> Value:
    """Return an element of an object; the same key gives the same element again."""
    if isinstance(index, Const):
        key: object = hashable(index.value)
        if key in value.elements:
            return value.elements[key]
        if isinstance(key, str) and key in named_items(value):
            return named_items(value)[key]
        if isinstance(key, str):
            made = value.elements[key] = state.part(value, f"[{key!r}]", taint=index.taint)
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
