"""Uses of tracked objects by code other than the program's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Use
from fsdplint.engine.interpreter.state import OBJECTS_AT_COST, Frame, PathState
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    StateDict,
    Symbol,
    Tensor,
    Value,
    class_names,
    contained,
    reachable,
)
from fsdplint.knowledge.names import of_torch


def track(state: PathState, item: Object) -> None:
    """Note every use of ``item`` from now on."""
    if not state.importing and item not in state.tracked:
        state.tracked.add(item)
        _tracked_below(state, item, {item})


def attach(state: PathState, part: Object, whole: Object, step: str) -> None:
    """Make an object that is no part of another yet a part of ``whole``."""
    part.parent, part.step = whole, step
    _tracked_below(state, whole, state.below.get(part, set()))


def _tracked_below(state: PathState, whole: Object, items: set[Object]) -> None:
    for above in (whole, *whole.ancestors()) if items else ():
        state.below.setdefault(above, set()).update(items)


def used(
    state: PathState, time: int, name: str, values: Sequence[Value], node: ir.Node, frame: Frame
) -> None:
    """Note that the function or method ``name`` gets ``values``."""
    if not state.importing:
        state.trace.called.append((time, name))
    if state.tracked:
        got = {item for each in values if type(each) is not Const for item in _held(each)}
        state.charge(len(got) / OBJECTS_AT_COST)
        changed(state, time, name, got, node, frame)


def changed(
    state: PathState, time: int, name: str, got: set[Object], node: ir.Node, frame: Frame
) -> None:
    """Note that ``name`` does something to these objects, or to what they are parts of."""
    if state.importing:
        return
    whole = _above(got)
    parts = {item for each in got for item in state.below.get(each, ())}
    concerned = frozenset(parts | (state.tracked & whole))
    if concerned:
        given = concerned & got
        only = frozenset() if given else frozenset(got)
        state.trace.uses.append(Use(time, state.site(node, frame), name, concerned, given, only))


def is_asked_for(state: PathState, value: Value) -> bool:
    """True if a value, or something that it holds, matters to a rule."""
    if any(isinstance(each, Symbol) and of_torch(each.name) for each in contained(value)):
        return True
    return any(
        item.sharded or item in state.tracked or any(map(of_torch, class_names(item.cls)))
        for item in reachable(value)
    )


def _above(items: Iterable[Object]) -> set[Object]:
    """Return the objects that the items are parts of."""
    found: set[Object] = set()
    for item in items:
        above = item.parent
        while above is not None and above not in found:
            found.add(above)
            above = above.parent
    return found


def _held(value: Value) -> Iterator[Object]:
    """Yield the objects that code given ``value`` can change; tensors count as their owners."""
    if type(value) is not Object:
        yield from _owners(value)
    yield from reachable(value)


def _owners(value: Value) -> Iterator[Object]:
    for item in contained(value):
        if isinstance(item, (Parameters, Tensor)):
            yield item.module
        elif isinstance(item, StateDict):
            yield item.owner
