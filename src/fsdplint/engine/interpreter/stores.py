"""Assignments to names, attributes and elements."""

from __future__ import annotations

from itertools import zip_longest
from typing import cast

from fsdplint.engine import ir
from fsdplint.engine.interpreter import access, tensors, tracking
from fsdplint.engine.interpreter.elements import (
    EVERY,
    container_items,
    restore,
    store_key,
    unpacked,
)
from fsdplint.engine.interpreter.events import Repoint, Store
from fsdplint.engine.interpreter.modules import is_module, is_parameter, is_unit
from fsdplint.engine.interpreter.names import imported_scope
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Choice,
    ClassValue,
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    UnitValue,
    Value,
    choice,
    followed,
    read_from,
    taint_of,
)
from fsdplint.knowledge.modules import MODULE_DICT
from fsdplint.knowledge.ranks import ENVIRONMENT


def bind_target(state: PathState, target: ir.Expr, value: Value, frame: Frame) -> None:
    """Assign to a name, a tuple of targets, an attribute or a subscript."""
    if isinstance(target, ir.Name):
        if target.id in frame.elsewhere:
            state.note_change()
        frame.elsewhere.get(target.id, frame.scope).names[target.id] = value
    elif isinstance(target, ir.Collection):
        parts = _parts(state, _entry(state, value, target), len(target.elements))
        for inner, part in zip_longest(target.elements, parts[: len(target.elements)]):
            inner = inner.value if isinstance(inner, ir.Starred) else inner
            bind_target(state, inner, part or state.unknown(), frame)
    elif isinstance(target, ir.Attribute):
        _store_attribute(state, followed(state.evaluate(target.value, frame)), target, value, frame)
    elif isinstance(target, ir.Subscript):
        _store_item(state, target, value, frame)
    elif isinstance(target, ir.Starred):
        bind_target(state, target.value, value, frame)


def _entry(state: PathState, value: Value, target: ir.Expr) -> Value:
    """Choose one entry of a table of tuples for this path, so that its parts belong together."""
    if not isinstance(value, Choice) or not value.tests:
        return value
    for option, test, _, place in access.entries(state, value, target):
        if state.decisions.decide(test, False, 2, place):
            return option
    return value.options[-1]


def _parts(state: PathState, value: Value, count: int) -> list[Value]:
    """Return what ``count`` targets get: the parts of one tuple, with constants of any left open.

    The objects of one tuple belong together, but that its flag is `False` is not known of others.
    """
    parts = list(unpacked(state, followed(value), count))
    options = value.options if isinstance(value, Choice) else ()
    tuples = (each.items for each in options if isinstance(each, Sequence) and not each.rest)
    columns = zip(*(items for items in tuples if len(items) == count), strict=True)
    for index, column in enumerate(columns):
        if all(isinstance(each, Const) for each in column):
            parts[index] = choice(list(column))
    return parts


def _store_attribute(
    state: PathState, owner: Value, target: ir.Attribute, value: Value, frame: Frame
) -> None:
    """Assign to an attribute of an object, of parameters in a loop, a class or a module."""
    if isinstance(owner, (Object, Parameters, ClassValue, UnitValue)):
        state.note_change(owner)
    if isinstance(owner, Object):
        if access.set_by_property(state, owner, target.attr, value, target, frame):
            return
        if target.attr == "__dict__" and _share_attributes(owner, followed(value)):
            return
        _overwritten(state, owner, value, target, frame)
        if isinstance(value, Const) and target.attr in frame.unit.counters:
            value = state.unknown(Taint.ELEMENT)  # a step count is no constant
        elif state.undecided:
            value = _or_as_before(state, owner, value, target, frame)
        owner.attrs[target.attr] = value
        stored(state, owner, target.attr, value, target, frame)
        if target.attr == "param_groups":
            state.note(Repoint, target, frame, owner)
    elif isinstance(owner, Parameters):
        state.note(Store, target, frame, owner, target.attr, value)
        if target.attr not in ("grad", "requires_grad"):
            tracking.used(state, state.tick(), "=", [owner], target, frame)
    elif isinstance(owner, ClassValue):
        owner.attrs[target.attr] = value
    elif isinstance(owner, UnitValue):
        imported_scope(state, owner.unit).names[target.attr] = value


def _share_attributes(owner: Object, value: Value) -> bool:
    """Keep an object's attributes in a dict from now on; return whether the dict is known.

    A class whose objects all share their attributes does so, and its second object finds what the
    first one was set up with.
    """
    if not isinstance(value, Mapping) or value.rest:
        return False
    owner.shared = value
    owner.attrs = cast(dict[str, Value], value.items)  # its keys are strings, or no code reads them
    return True


def _or_as_before(
    state: PathState, owner: Object, value: Value, target: ir.Attribute, frame: Frame
) -> Value:
    """Join a constant with the attribute's old value, in one of two arms that both run.

    Of two values that are no constants the new one stays: events go on with it.
    """
    if not isinstance(value, Const) and not isinstance(owner.attrs.get(target.attr), Const):
        return value
    declared = isinstance(owner.cls, ClassValue) and owner.cls.lookup(target.attr) is not None
    if target.attr not in owner.attrs and owner.origin is Origin.ALLOCATED and not declared:
        return value
    before = access.read(state, owner, target.attr, target, frame)
    return choice([before, value], taint_of(before, value))


def stored(
    state: PathState, owner: Object, name: str, value: Value, node: ir.Node, frame: Frame
) -> None:
    """Note an assignment to an attribute; a module becomes a part of the owner."""
    compose(state, owner, value, f".{name}")
    _note_tie(state, owner, name)
    parameter = name == "data" and is_parameter(owner)
    if is_module(owner) or name == "requires_grad" or parameter:
        state.note(Store, node, frame, owner, name, value)


def _note_tie(state: PathState, owner: Object, name: str) -> None:
    """Track a model whose weight is replaced once it is sharded."""
    whole = [owner, *owner.ancestors()]
    if name == "weight" and any(is_unit(each) for each in whole):
        tracking.track(state, whole[-1])


def _overwritten(
    state: PathState, owner: Object, value: Value, target: ir.Node, frame: Frame
) -> None:
    """Note that a tracked object gets something new, such as a tensor for a parameter."""
    inner = followed(value)
    own = isinstance(inner, Object) and owner in inner.ancestors()
    if state.tracked and not own and not isinstance(value, Const):
        tracking.changed(state, state.tick(), "=", {owner}, target, frame)


def compose(state: PathState, owner: Object, value: Value, step: str) -> None:
    """Make a module that is stored in another a part of it."""
    value = followed(value)
    if not isinstance(value, Object) or value.parent is not None or value is owner:
        return
    if is_module(owner) and value not in owner.ancestors():
        tracking.attach(state, value, owner, step)
        for index, item in enumerate(container_items(value)):
            if item.parent is None:
                tracking.attach(state, item, value, f"[{index}]")


def _store_item(state: PathState, target: ir.Subscript, value: Value, frame: Frame) -> None:
    """Assign to an element of a container, of parameters or of an object."""
    owner = followed(state.evaluate(target.value, frame))
    state.note_change(owner)
    index = state.evaluate(target.index, frame)
    tensors.operated(state, "[]=", (owner,), target, frame)
    if isinstance(owner, Mapping):
        store_key(owner, index, value)
    elif isinstance(owner, Sequence):
        _store_element(state, owner, index, value)
    elif isinstance(owner, StateDict):
        owner.live = False  # one of its tensors is another from here on
    elif isinstance(owner, (Parameters, Tensor)):
        tracking.used(state, state.tick(), "=", [owner], target, frame)
    elif isinstance(owner, Symbol) and owner.name == ENVIRONMENT:
        access.set_environment(state, index, value)
    elif isinstance(owner, Object):
        _overwritten(state, owner, value, target, frame)
        if read_from(owner) is not None and read_from(followed(value)) is None:
            owner.escaped = state.tick()  # it now differs from the file
        if _is_new_entry(owner, index, value):
            fill(state, owner, [value], in_loop=frame.loops > 0)
        restore(owner, index)
        if isinstance(index, Const) and isinstance(index.value, (int, str)):
            owner.elements[index.value] = value
        compose(state, owner, value, "[]")
        _note_repointing(state, owner, index, target, frame)


def _store_element(state: PathState, owner: Sequence, index: Value, value: Value) -> None:
    """Assign to an element of a list, in its place where the list and the place are known."""
    place = index.value if isinstance(index, Const) else None
    known = isinstance(place, int) and -len(owner.items) <= place < len(owner.items)
    if isinstance(place, int) and known and not owner.rest and not state.undecided:
        owner.items[place] = value
    else:
        owner.rest.append(value)


def _is_new_entry(owner: Object, index: Value, value: Value) -> bool:
    """True if an assignment surely adds a module to a module dict, and replaces none there."""
    if not (isinstance(owner.cls, Symbol) and owner.cls.name == MODULE_DICT) or owner.args:
        return False
    if not isinstance(followed(value), Object):
        return False
    if isinstance(index, Const):
        return index.value not in owner.elements
    return not container_items(owner)


def fill(state: PathState, container: Object, values: list[Value], *, in_loop: bool) -> None:
    """Add modules to a container module."""
    held = container.attrs.get("*appended*")
    filled = held if isinstance(held, Sequence) else Sequence([])
    container.attrs["*appended*"] = filled
    filled.items.extend(values)
    container.repeated |= in_loop or len(filled.items) > 2
    for value in values:
        item = followed(value)
        if isinstance(item, Object) and item.parent is None and item is not container:
            tracking.attach(state, item, container, "[]")
    container.elements.pop(EVERY, None)


def _note_repointing(
    state: PathState, owner: Object, index: Value, target: ir.Node, frame: Frame
) -> None:
    """Note ``optimizer.param_groups[0]["params"] = …``, which replaces the parameters."""
    if isinstance(index, Const) and index.value != "params":
        return
    for whole in (owner, *owner.ancestors()):
        if whole.step == ".param_groups" and whole.parent is not None:
            state.note(Repoint, target, frame, whole.parent)
