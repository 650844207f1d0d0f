"""Loops: a short display runs element by element, any other loop once for all iterations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fsdplint.engine import ir
from fsdplint.engine.interpreter import batches
from fsdplint.engine.interpreter.elements import MAX_NAMES, kinds, submodules, unrolled, view_of
from fsdplint.engine.interpreter.expressions import truth
from fsdplint.engine.interpreter.names import lookup
from fsdplint.engine.interpreter.shape import assigned
from fsdplint.engine.interpreter.state import Flow, Frame, PathState
from fsdplint.engine.interpreter.stores import bind_target
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Taint,
    Value,
    followed,
)
from fsdplint.engine.project.project import identifiers


def for_(state: PathState, node: ir.For, frame: Frame) -> Flow:
    """Execute a loop: over a short sequence element by element, over any other once for all.

    A longer sequence is followed so too if the body calls ``setattr``: by the names in it, mostly.
    """
    iterable = followed(state.evaluate(node.iterable, frame))
    batches.note_iteration(state, node, iterable, frame)
    every = submodules(state, iterable)
    view = view_of(iterable)
    if every and isinstance(view, Object):
        return _for_submodules(state, node, every, view, frame)
    known = unrolled(iterable)
    if known is None and (names := unrolled(iterable, MAX_NAMES)) and _sets_by_name(node):
        known = names
    with _looping(state, node, frame, known is None):
        for item in kinds(state, iterable) if known is None else known:
            bind_target(state, node.target, item, frame)
            mark = len(state.guards)
            flow = state.run(node.body, frame)
            del state.guards[mark:]
            if flow in (Flow.RETURN, Flow.RAISE) and not _guarded_partially(state):
                return flow if known is not None or flow is Flow.RETURN else Flow.NEXT
            if flow is Flow.BREAK:
                break
    return state.run(node.orelse, frame)


def _sets_by_name(node: ir.For) -> bool:
    return "setattr" in identifiers(*node.body)[0]


def _for_submodules(
    state: PathState, node: ir.For, every: list[Value], view: Object, frame: Frame
) -> Flow:
    """Visit each submodule in turn: a test of its class is decided, any other runs both arms."""
    outer, state.enumerating = state.enumerating, view
    with _looping(state, node, frame, True):
        for item in every:
            bind_target(state, node.target, item, frame)
            mark = len(state.guards)
            state.run(node.body, frame)
            del state.guards[mark:]
    state.enumerating = outer
    return state.run(node.orelse, frame)


def while_(state: PathState, node: ir.While, frame: Frame) -> Flow:
    """Execute the body of a ``while`` once for all iterations."""
    with _looping(state, node, frame, True):
        test = truth(state, node.test, frame)
        if state.decisions.known(test) is False:
            return state.run(node.orelse, frame)
        by_rank = [state.guard(test, node.test, True, frame)] if test.taint & Taint.RANK else []
        with state.under(by_rank):
            flow = state.run(node.body, frame)
    return flow if flow is Flow.RETURN else state.run(node.orelse, frame)


def _guarded_partially(state: PathState) -> bool:
    """True if only some ranks or iterations get here, so that others go on."""
    return any(guard.divergent or guard.progress for guard in state.guards)


@contextmanager
def _looping(
    state: PathState, node: ir.For | ir.While, frame: Frame, generic: bool
) -> Iterator[None]:
    """Make constants unknown that the body changes, if one run covers all iterations."""
    if generic:
        _forget_constants(state, node, frame)
        frame.loops += 1
    yield
    if generic:
        frame.loops -= 1


def _forget_constants(state: PathState, node: ir.For | ir.While, frame: Frame) -> None:
    """Make the constants unknown that a loop's body assigns to variables and attributes."""
    if node not in state.project.assigned:
        state.project.assigned[node] = list(assigned(node))
    for target in state.project.assigned[node]:
        if isinstance(target, ir.Name):
            old = frame.scope.names.get(target.id)
            if isinstance(old, Const):
                frame.scope.names[target.id] = state.unknown(Taint.ELEMENT)
        elif isinstance(target, ir.Attribute) and isinstance(target.value, ir.Name):
            owner = followed(lookup(state, target.value.id, frame.scope))
            if isinstance(owner, Object) and isinstance(_held(owner, target.attr), Const):
                owner.attrs[target.attr] = state.unknown(Taint.ELEMENT)


def _held(owner: Object, name: str) -> Value | None:
    """Return what an object has under a name, be it a default of its class."""
    default = owner.cls.lookup(name) if isinstance(owner.cls, ClassValue) else None
    return owner.attrs.get(name, default)
