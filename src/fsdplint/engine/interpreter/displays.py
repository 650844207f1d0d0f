"""Displays and comprehensions."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter.elements import element_of, extend, merge, store_key, unrolled
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.stores import bind_target
from fsdplint.engine.interpreter.values import (
    Const,
    Mapping,
    Parameters,
    Scope,
    Sequence,
    Taint,
    Value,
    followed,
    taint_of,
)

_CONSTANTS_AT_STEP = 16


def collection(state: PathState, node: ir.Collection, frame: Frame) -> Value:
    """Evaluate a list, tuple or set display."""
    made = Sequence([], kind=node.kind)
    for element in node.elements:
        if isinstance(element, ir.Starred):
            inner = followed(state.evaluate(element.value, frame))
            if not isinstance(inner, Sequence) or inner.rest:
                inner = Sequence([], [element_of(state, inner)])
            extend(state, made, inner)
        else:
            made.items.append(_plain(state, element) or state.evaluate(element, frame))
    made.taint, made.repeated = taint_of(*made.items, *made.rest), bool(made.rest)
    return made


def dict_display(state: PathState, node: ir.DictDisplay, frame: Frame) -> Value:
    made = Mapping({})
    for key_node, value_node in node.items:
        value = _plain(state, value_node) or state.evaluate(value_node, frame)
        if key_node is None:
            merge(made, followed(value))
            continue
        store_key(made, _plain(state, key_node) or state.evaluate(key_node, frame), value)
    made.taint = taint_of(*made.items.values(), *made.rest)
    return made


def _plain(state: PathState, node: ir.Expr) -> Const | None:
    """Return a constant in a display at a fraction of a step: tables have thousands of them."""
    if type(node) is not ir.Constant:
        return None
    state.constants += 1
    if not state.constants % _CONSTANTS_AT_STEP:
        state.count_step()
    return Const(node.value)


def comprehension(state: PathState, node: ir.Comprehension, frame: Frame) -> Value:
    """Evaluate a comprehension: element by element if it is short, else one for all."""
    inner = Frame(Scope({}, frame.scope, frame.unit), frame.unit, frame.function, frame.receiver)
    inner.loops = frame.loops + 1
    first, *others = node.clauses
    source = followed(state.evaluate(first.iterable, frame))
    known = unrolled(source) if not others and not first.conditions else None
    if known is not None and node.kind != "dict":
        items = []
        for item in known:
            bind_target(state, first.target, item, inner)
            items.append(state.evaluate(node.element, inner))
        return Sequence(items, kind=node.kind)
    selective = _bind_clauses(state, node.clauses, source, inner)
    if node.key is not None:
        state.evaluate(node.key, inner)
    with state.under(_rank_tests(state, node.clauses, inner)):
        element = state.evaluate(node.element, inner)
    if isinstance(element, Parameters):
        lazy = node.kind == "generator"
        time = element.time if lazy else state.tick()
        filtered = selective or element.filtered
        element = replace(element, time=time, lazy=lazy, filtered=filtered)
    if node.kind == "dict":
        return Mapping({}, [element], element.taint.without(Taint.ELEMENT))
    return Sequence([], [element], node.kind, element.taint.without(Taint.ELEMENT), repeated=True)


def _bind_clauses(
    state: PathState, clauses: tuple[ir.Clause, ...], source: Value, inner: Frame
) -> bool:
    """Bind the loop variables; True if a condition selects by more than ``requires_grad``."""
    selective = False
    for index, clause in enumerate(clauses):
        iterable = source if index == 0 else followed(state.evaluate(clause.iterable, inner))
        bind_target(state, clause.target, element_of(state, iterable), inner)
        for condition in clause.conditions:
            state.evaluate(condition, inner)
            attr = condition.attr if isinstance(condition, ir.Attribute) else ""
            selective |= attr != "requires_grad"
    return selective


def _rank_tests(state: PathState, clauses: tuple[ir.Clause, ...], inner: Frame) -> list[Guard]:
    """Return the guards of the conditions that distinguish ranks."""
    conditions = [condition for clause in clauses for condition in clause.conditions]
    tests = [(state.evaluate(condition, inner), condition) for condition in conditions]
    return [state.guard(t, at, True, inner) for t, at in tests if t.taint & Taint.RANK]
