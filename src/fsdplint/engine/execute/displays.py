"""Displays, comprehensions and the targets of assignments."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from itertools import zip_longest

from fsdplint.engine import ir
from fsdplint.engine.execute.attributes import Attributes
from fsdplint.engine.execute.elements import (
    element_of,
    extend,
    merge,
    store_key,
    unpacked,
    unrolled,
)
from fsdplint.engine.execute.state import Frame
from fsdplint.engine.site import Guard
from fsdplint.engine.values import (
    Const,
    Mapping,
    Parameters,
    Scope,
    Sequence,
    Taint,
    Value,
    resolved,
    taint_of,
)

CONSTANTS_AT_STEP = 16


class Displays(Attributes):
    def collection(self, node: ir.Collection, frame: Frame) -> Value:
        made = Sequence([], kind=node.kind)
        for element in node.elements:
            if isinstance(element, ir.Starred):
                inner = resolved(self.evaluate(element.value, frame))
                if not isinstance(inner, Sequence) or inner.rest:
                    inner = Sequence([], [element_of(self, inner)])
                extend(self, made, inner)
            else:
                made.items.append(self.plain(element) or self.evaluate(element, frame))
        made.taint, made.repeated = taint_of(*made.items, *made.rest), bool(made.rest)
        return made

    def dict_display(self, node: ir.DictDisplay, frame: Frame) -> Value:
        made = Mapping({})
        for key_node, value_node in node.items:
            value = self.plain(value_node) or self.evaluate(value_node, frame)
            if key_node is None:
                merge(made, resolved(value))
                continue
            store_key(made, self.plain(key_node) or self.evaluate(key_node, frame), value)
        made.taint = taint_of(*made.items.values(), *made.rest)
        return made

    def plain(self, node: ir.Expr) -> Const | None:
        """A constant of a display, which counts for less than a step: tables have thousands."""
        if type(node) is not ir.Constant:
            return None
        self.constants += 1
        if not self.constants % CONSTANTS_AT_STEP:
            self.spend()
        return Const(node.value)

    def comprehension(self, node: ir.Comprehension, frame: Frame) -> Value:
        inner = Frame(
            Scope({}, frame.scope, frame.unit), frame.unit, frame.function, frame.receiver
        )
        inner.loops = frame.loops + 1
        first, *others = node.clauses
        source = resolved(self.evaluate(first.iterable, frame))
        known = unrolled(source) if not others and not first.conditions else None
        if known is not None and node.kind != "dict":
            items = []
            for item in known:
                self.bind_target(first.target, item, inner)
                items.append(self.evaluate(node.element, inner))
            return Sequence(items, kind=node.kind)
        selective = self.bind_clauses(node.clauses, source, inner, frame)
        if node.key is not None:
            self.evaluate(node.key, inner)
        with self.under(self.rank_tests(node.clauses, inner)):
            element = self.evaluate(node.element, inner)
        if isinstance(element, Parameters):
            lazy = node.kind == "generator"
            time = element.time if lazy else self.tick()
            filtered = selective or element.filtered
            element = replace(element, time=time, lazy=lazy, filtered=filtered)
        if node.kind == "dict":
            return Mapping({}, [element], element.taint.without(Taint.ELEMENT))
        return Sequence(
            [], [element], node.kind, element.taint.without(Taint.ELEMENT), repeated=True
        )

    def bind_clauses(
        self, clauses: tuple[ir.Clause, ...], source: Value, inner: Frame, outer: Frame
    ) -> bool:
        """Binds the loop variables; True if a condition selects by more than ``requires_grad``."""
        selective = False
        for index, clause in enumerate(clauses):
            iterable = source if index == 0 else resolved(self.evaluate(clause.iterable, inner))
            self.bind_target(clause.target, element_of(self, iterable), inner)
            for condition in clause.conditions:
                self.evaluate(condition, inner)
                attr = condition.attr if isinstance(condition, ir.Attribute) else ""
                selective |= attr != "requires_grad"
        return selective

    def rank_tests(self, clauses: tuple[ir.Clause, ...], inner: Frame) -> list[Guard]:
        """The conditions of a comprehension that tell ranks apart."""
        conditions = [condition for clause in clauses for condition in clause.conditions]
        tests = [(self.evaluate(condition, inner), condition) for condition in conditions]
        return [self.guard(t, at, True, inner) for t, at in tests if t.taint & Taint.RANK]

    def bind_target(self, target: ir.Expr, value: Value, frame: Frame) -> None:
        """Assigns to a name, a tuple of targets, an attribute or a subscript."""
        if isinstance(target, ir.Name):
            frame.elsewhere.get(target.id, frame.scope).names[target.id] = value
        elif isinstance(target, ir.Collection):
            parts = unpacked(self, resolved(value), len(target.elements))
            for inner, part in zip_longest(target.elements, parts[: len(target.elements)]):
                inner = inner.value if isinstance(inner, ir.Starred) else inner
                self.bind_target(inner, part or self.unknown(), frame)
        elif isinstance(target, ir.Attribute):
            self.store_attribute(resolved(self.evaluate(target.value, frame)), target, value, frame)
        elif isinstance(target, ir.Subscript):
            self.store_item(target, value, frame)
        elif isinstance(target, ir.Starred):
            self.bind_target(target.value, value, frame)

    @abstractmethod
    def store_attribute(
        self, owner: Value, target: ir.Attribute, value: Value, frame: Frame
    ) -> None: ...

    @abstractmethod
    def store_item(self, target: ir.Subscript, value: Value, frame: Frame) -> None: ...

    @abstractmethod
    def guard(self, test: Value, node: ir.Node, taken: bool, frame: Frame) -> Guard: ...
