"""Expressions: from IR to abstract values, with the events that calls inside them cause."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Unwrap
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.comparison import compare
from fsdplint.engine.execute.elements import (
    element_of,
    hashable,
    merge,
    named_items,
    store_key,
    unpacked,
    unrolled,
)
from fsdplint.engine.execute.state import Frame, State
from fsdplint.engine.link import Unit
from fsdplint.engine.site import Guard
from fsdplint.engine.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Condition,
    Const,
    FunctionValue,
    Identity,
    Imported,
    Mapping,
    Method,
    ModuleScope,
    Object,
    Origin,
    Parameters,
    Scope,
    Sequence,
    StateDict,
    Super,
    Symbol,
    Taint,
    UnitValue,
    Value,
    choice,
    class_names,
    key_of,
    resolved,
    taint_of,
)
from fsdplint.knowledge.calls import (
    ABSENT_FROM_FSDP2,
    RANK_ATTRIBUTES,
    RANK_VARIABLES,
    WRAPPED,
    Generation,
)
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.ranks import ATTRIBUTES, VARIABLES, Role

# Attributes that read as a bound method even where no class is known to define them.
_BOUND_METHODS = frozenset(
    {"forward", "no_sync", "parameters", "named_parameters", "state_dict", "step"}
)


class Expressions(State):
    @abstractmethod
    def call(self, node: ir.Call, frame: Frame) -> Value: ...

    @abstractmethod
    def invoke(
        self,
        function: FunctionValue,
        args: list[Value],
        keywords: dict[str, Value],
        frame: Frame,
        node: ir.Node,
    ) -> Value: ...

    @abstractmethod
    def imported_scope(self, unit: Unit) -> ModuleScope: ...

    @abstractmethod
    def waited_for(self, name: str, scope: ModuleScope) -> Value: ...

    def evaluate(self, node: ir.Expr, frame: Frame) -> Value:
        self.spend()
        return _HANDLERS[type(node)](self, node, frame)

    # Names

    def name(self, node: ir.Name, frame: Frame) -> Value:
        return self.lookup(node.id, frame.scope)

    def lookup(self, name: str, scope: Scope) -> Value:
        current: Scope | None = scope
        while current is not None:
            value = current.names.get(name)
            if isinstance(value, (Imported, Choice)):
                value = current.names[name] = self.read_first(value)
            elif value is None and isinstance(current, ModuleScope) and name in current.waiting:
                value = current.late.get(name) or self.waited_for(name, current)
            if value is not None:
                return value
            outermost, current = current, current.parent
        if hasattr(builtins, name):
            return Symbol(f"builtins.{name}")
        self.met_unread()
        value = outermost.names[name] = self.unknown(key=("name", outermost.unit.path, name))
        return value

    def read_first(self, value: Value) -> Value:
        """The value behind an import, or behind each alternative of one."""
        if isinstance(value, Imported):
            return self.import_value(value)
        if isinstance(value, Choice) and any(isinstance(o, Imported) for o in value.options):
            return choice([self.read_first(option) for option in value.options], value.taint)
        return value

    def import_value(self, imported: Imported) -> Value:
        found = self.project.find(imported.module, imported.level, imported.unit)
        unit = None if found is None else self.project.unit(found)
        if imported.name is None:
            return Symbol(canonical(imported.module)) if unit is None else UnitValue(unit)
        if unit is not None and unit is not imported.unit:
            member = self.member(unit, imported.name)
            if member is not None:
                return member
        return self.imported_submodule(imported, imported.name, found is None)

    def imported_submodule(self, imported: Imported, name: str, library: bool) -> Value:
        """``from package import module``, also by a package's own ``__init__``."""
        submodule = f"{imported.module}.{name}" if imported.module else name
        found = self.project.find(submodule, imported.level, imported.unit)
        unit = None if found is None else self.project.unit(found)
        if unit is not None:
            return UnitValue(unit)
        if library and not imported.level:
            return Symbol(canonical(submodule))
        self.met_unread()
        return self.unknown(key=("import", imported.module, name))

    def member(self, unit: Unit, name: str) -> Value | None:
        """A variable of an imported module, or a submodule of an imported package."""
        scope = self.imported_scope(unit)
        if scope.has(name):
            return self.lookup(name, scope)
        found = self.project.find(name, 1, unit)
        inner = None if found is None else self.project.unit(found)
        return None if inner is None else UnitValue(inner)

    # Attributes and subscripts

    def attribute(self, node: ir.Attribute, frame: Frame) -> Value:
        return self.read(self.evaluate(node.value, frame), node.attr, node, frame)

    def read(self, value: Value, name: str, node: ir.Node, frame: Frame) -> Value:
        value = resolved(value)
        tensor = tensors.attribute(self, value, name)
        if tensor is not None:
            return tensor
        if isinstance(value, Symbol):
            return Symbol(canonical(f"{value.name}.{name}"))
        if isinstance(value, UnitValue):
            return self.member(value.unit, name) or self.unknown(
                key=("member", value.unit.path, name)
            )
        if isinstance(value, Object):
            return self.object_attribute(value, name, node, frame)
        if isinstance(value, Super):
            return self.super_attribute(value, name)
        if isinstance(value, ClassValue):
            found = value.lookup(name)
            return (
                self.unknown(key=("class", Identity(value), name))
                if found is None
                else self.bound_to_class(found, value)
            )
        return self.unknown(value.taint, key=("attr", key_of(value), name))

    def bound_to_class(self, found: Value, cls: ClassValue) -> Value:
        if isinstance(found, FunctionValue) and "classmethod" in decorators(found.function):
            return Method(cls, found.function.name, found, None)
        return found

    def object_attribute(self, value: Object, name: str, node: ir.Node, frame: Frame) -> Value:
        if name in value.attrs:
            return value.attrs[name]
        found = value.cls.lookup(name) if isinstance(value.cls, ClassValue) else None
        if isinstance(found, FunctionValue):
            return self.bind(value, found, node, frame)
        if found is not None:
            return found
        named = named_items(value)
        if name in named:
            return named[name]
        fsdp1 = value.generation() is Generation.FSDP1
        if name in _BOUND_METHODS or (fsdp1 and name in ABSENT_FROM_FSDP2 - WRAPPED):
            return Method(value, name, None, self.site(node, frame))
        taint = Taint.RANK if name in RANK_ATTRIBUTES else Taint.NONE
        if name in WRAPPED and value.sharded:
            if not fsdp1:
                self.emit(Unwrap(self.tick(), self.site(node, frame), value, name))
            return value
        made = value.attrs[name] = self.part(value, f".{name}", taint=taint)
        made.role = role_of_attribute(value, name)
        if made.role not in (None, Role.SIZE):
            made.taint |= Taint.RANK
        return made

    def bind(self, value: Object, found: FunctionValue, node: ir.Node, frame: Frame) -> Value:
        marks = decorators(found.function)
        if marks & {"property", "cached_property"}:
            return self.invoke(found, [value], {}, frame, node)
        if "staticmethod" in marks:
            return found
        receiver = value.cls if "classmethod" in marks and value.cls is not None else value
        return Method(receiver, found.function.name, found, self.site(node, frame))

    def super_attribute(self, value: Super, name: str) -> Value:
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

    def subscript(self, node: ir.Subscript, frame: Frame) -> Value:
        value = resolved(self.evaluate(node.value, frame))
        index = self.evaluate(node.index, frame)
        return self.item(value, index)

    def item(self, value: Value, index: Value) -> Value:
        key = index.value if isinstance(index, Const) else None
        if isinstance(value, Sequence) and isinstance(key, int) and not value.rest:
            return (
                value.items[key] if -len(value.items) <= key < len(value.items) else self.unknown()
            )
        if isinstance(value, Sequence):
            return element_of(self, value)
        if isinstance(value, Mapping):
            return self.mapping_item(value, index)
        if isinstance(value, StateDict):
            return replace(value, element=True, escaped=False, taint=Taint.NONE)
        if isinstance(value, Parameters):
            return value
        if isinstance(value, Symbol) and value.name == "os.environ":
            return self.environment(index)
        if isinstance(value, Object):
            return self.object_item(value, index)
        return self.unknown(taint_of(value, index), key=("item", key_of(value), key_of(index)))

    def mapping_item(self, value: Mapping, index: Value) -> Value:
        if isinstance(index, Const) and hashable(index.value) in value.items:
            return value.items[hashable(index.value)]
        if isinstance(index, Const):
            return choice(list(value.rest)) if value.rest else self.unknown()
        options = [*value.items.values(), *value.rest]
        if len(value.items) > 1 and not value.rest:
            tests = [compare("Equal", index, Const(key)) for key in value.items]
            return Choice(tuple(options), taint_of(index), tuple(tests))
        return choice(options) if options else self.unknown(taint_of(index))

    def environment(self, index: Value) -> Value:
        name = index.value if isinstance(index, Const) else None
        taint = Taint.RANK if name in RANK_VARIABLES else Taint.NONE
        made = self.unknown(taint, key=("environment", key_of(index)))
        made.role, made.told_by = VARIABLES.get(str(name)), str(name)
        return made

    def object_item(self, value: Object, index: Value) -> Value:
        if isinstance(index, Const):
            key: object = hashable(index.value)
            if key in value.elements:
                return value.elements[key]
            if isinstance(key, str) and key in named_items(value):
                return named_items(value)[key]
            if isinstance(key, str):
                made = value.elements[key] = self.part(value, f"[{key!r}]", taint=index.taint)
                return made
            known = value.args[0] if value.args else None
            if isinstance(known, Sequence) and not known.rest:
                return self.item(known, index)
        return element_of(self, value)

    # Displays and comprehensions

    def collection(self, node: ir.Collection, frame: Frame) -> Value:
        items: list[Value] = []
        rest: list[Value] = []
        for element in node.elements:
            if isinstance(element, ir.Starred):
                inner = resolved(self.evaluate(element.value, frame))
                known = inner.items if isinstance(inner, Sequence) and not inner.rest else None
                items.extend(known or [])
                rest.extend([] if known is not None else [element_of(self, inner)])
            else:
                items.append(self.evaluate(element, frame))
        return Sequence(items, rest, node.kind, taint_of(*items, *rest), repeated=bool(rest))

    def dict_display(self, node: ir.DictDisplay, frame: Frame) -> Value:
        made = Mapping({})
        for key_node, value_node in node.items:
            value = self.evaluate(value_node, frame)
            if key_node is None:
                merge(made, resolved(value))
                continue
            key = self.evaluate(key_node, frame)
            store_key(made, key, value)
        made.taint = taint_of(*made.items.values(), *made.rest)
        return made

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

    # Operators

    def constant(self, node: ir.Constant, frame: Frame) -> Value:
        return Const(node.value)

    def lambda_(self, node: ir.Lambda, frame: Frame) -> Value:
        return FunctionValue(node.function, frame.scope)

    def truth(self, node: ir.Expr, frame: Frame) -> Value:
        """The value that a test is about, each operand of ``and`` and ``or`` a test of its own."""
        if isinstance(node, ir.BoolOp):
            self.spend()
            return self.bool_op(node, frame, tested=True)
        if isinstance(node, ir.Not):
            self.spend()
            inner = self.truth(node.operand, frame)
            if not isinstance(inner, Const):  # a branch hangs on it, even where it is decided
                return Condition("not", (inner,), ("not", key_of(inner)), inner.taint)
            return Const(not inner.value, inner.taint)
        return tensors.look(self, self.evaluate(node, frame), node, frame)

    def conditional(self, node: ir.Conditional, frame: Frame) -> Value:
        test = self.truth(node.test, frame)
        outcome = self.decisions.known(test)
        hot = self.is_hot([node.body, node.orelse])
        if outcome is None and hot and not test.taint:
            prefer = self.is_hot([node.body]) or not self.is_hot([node.orelse])
            outcome = self.decisions.decide(test, prefer, 0 if self.importing else 2, node)
        if outcome is None:
            up = self.group_up
            with self.under([self.guard(test, node.test, True, frame)]):
                body = self.evaluate(node.body, frame)
            state, self.group_up = self.group_up, up
            with self.under([self.guard(test, node.test, False, frame)]):
                orelse = self.evaluate(node.orelse, frame)
            self.group_up = state if state is self.group_up else None
            return choice([body, orelse], test.taint | taint_of(body, orelse))
        with self.under([self.guard(test, node.test, outcome, frame)]):
            return self.evaluate(node.body if outcome else node.orelse, frame)

    @abstractmethod
    def guard(self, test: Value, node: ir.Node, taken: bool, frame: Frame) -> Guard: ...

    def bool_op(self, node: ir.BoolOp, frame: Frame, *, tested: bool = False) -> Value:
        evaluate = self.truth if tested else self.evaluate
        left = self.truth(node.left, frame)
        outcome = self.decisions.known(left)
        if outcome is not None and isinstance(left, Const):
            return left if outcome == (node.op == "or") else evaluate(node.right, frame)
        up = self.group_up
        with self.under([self.guard(left, node.left, node.op == "and", frame)]):
            right = evaluate(node.right, frame)
        self.group_up = up if up is self.group_up else None
        key = (node.op, key_of(left), key_of(right))
        return Condition(node.op, (left, right), key, taint_of(left, right))

    def not_(self, node: ir.Not, frame: Frame) -> Value:
        value = self.truth(node.operand, frame)
        known = self.decisions.known(value)
        if known is not None:
            return Const(not known, value.taint)
        return Condition("not", (value,), ("not", key_of(value)), value.taint)

    def compare(self, node: ir.Compare, frame: Frame) -> Value:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        return tensors.compared(self, node.op, left, right) or compare(node.op, left, right)

    def bin_op(self, node: ir.BinOp, frame: Frame) -> Value:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        if isinstance(left, Sequence) and isinstance(right, Sequence) and node.op == "Add":
            return Sequence([*left.items, *right.items], [*left.rest, *right.rest], left.kind)
        if node.op == "Add" and is_text(left) and is_text(right):
            assert isinstance(left, Const) and isinstance(right, Const)
            return Const(f"{left.value}{right.value}", taint_of(left, right))
        if node.op == "Modulo" and isinstance(node.left, (ir.Constant, ir.FormattedString)):
            self.look_formatted(right, node.right, frame)
        else:
            if frame.loops and (kept := tensors.accumulated(self, node.op, right)) is not None:
                self.sums[node] = kept
            made = tensors.binary(self, node.op, left, right)
            if made is not None:
                return made
        taint = taint_of(left, right)
        result = self.unknown(taint, key=(node.op, key_of(left), key_of(right)))
        if node.op == "Divide":
            self.divided(left, right, result, node, frame)
        if node.op == "MatrixMultiply":
            given = Arguments([left, right], {})
            site = self.site(node, frame)
            self.emit(Call(self.tick(), site, "torch.matmul", None, given, result))
        return result

    def look_formatted(self, value: Value, node: ir.Expr, frame: Frame) -> None:
        """``"%.2f" % value`` asks each tensor for its number."""
        nodes, values = [node], [value]
        if isinstance(node, ir.Collection) and isinstance(value, Sequence):
            nodes, values = list(node.elements), value.items
        for each, place in zip(values, nodes, strict=False):
            tensors.look(self, each, place, frame)

    def named(self, node: ir.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        self.bind_target(node.target, value, frame)
        return value

    def formatted(self, node: ir.FormattedString, frame: Frame) -> Value:
        values = [self.evaluate(value, frame) for value in node.values]
        for value, place in zip(values, node.values, strict=True):
            if frame.unit.text[place.end : place.end + 1] == "}":  # with a format it is an error
                tensors.look(self, value, place, frame)
        known = [value.value for value in values if isinstance(value, Const)]
        if len(known) == len(values) and len(node.literals) == len(values) + 1:
            pieces = [text + str(value) for text, value in zip(node.literals, known, strict=False)]
            return Const("".join(pieces) + node.literals[-1], taint_of(*values))
        made = self.unknown(taint_of(*values), key=("text", *map(key_of, values)))
        made.site = self.site(node, frame)
        made.args = tuple(v for v in values if isinstance(v, Object) and _is_plain(v))
        return made

    def yield_(self, node: ir.Yield, frame: Frame) -> Value:
        value = NONE if node.value is None else self.evaluate(node.value, frame)
        if node.kind == "await":
            return value
        if frame.on_yield is not None:
            run_body, frame.on_yield = frame.on_yield, None
            run_body(value)
        frame.yielded.append(value if node.kind == "yield" else element_of(self, resolved(value)))
        return self.unknown()

    def starred(self, node: ir.Starred, frame: Frame) -> Value:
        return self.evaluate(node.value, frame)

    def opaque(self, node: ir.Opaque, frame: Frame) -> Value:
        values = [self.evaluate(child, frame) for child in node.children]
        return self.unknown(taint_of(*values), key=("opaque", *map(key_of, values)))


def is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _is_plain(value: Object) -> bool:
    """Whether a value in a text is a rank, or an attribute of which nothing else is known."""
    leaf = value.origin is Origin.PART and not (value.attrs or value.elements or value.cls)
    return value.role is not None or leaf


def role_of_attribute(value: Object, name: str) -> Role | None:
    """What an attribute of a library's object says of the rank."""
    roles = [ATTRIBUTES.get(cls, {}) for cls in class_names(value.cls)]
    return next((found[name] for found in roles if name in found), None)


def decorators(function: ir.Function) -> set[str]:
    """The last name of every decorator of a function."""
    found = set()
    for node in function.decorators:
        node = node.func if isinstance(node, ir.Call) else node
        if isinstance(node, (ir.Name, ir.Attribute)):
            found.add(node.id if isinstance(node, ir.Name) else node.attr)
    return found


_HANDLERS: dict[type[ir.Node], Callable[..., Value]] = {
    ir.Name: Expressions.name,
    ir.Constant: Expressions.constant,
    ir.Attribute: Expressions.attribute,
    ir.Call: lambda machine, node, frame: machine.call(node, frame),
    ir.Subscript: Expressions.subscript,
    ir.Collection: Expressions.collection,
    ir.DictDisplay: Expressions.dict_display,
    ir.Starred: Expressions.starred,
    ir.Comprehension: Expressions.comprehension,
    ir.Lambda: Expressions.lambda_,
    ir.Conditional: Expressions.conditional,
    ir.BoolOp: Expressions.bool_op,
    ir.Not: Expressions.not_,
    ir.Compare: Expressions.compare,
    ir.BinOp: Expressions.bin_op,
    ir.NamedExpr: Expressions.named,
    ir.FormattedString: Expressions.formatted,
    ir.Yield: Expressions.yield_,
    ir.Opaque: Expressions.opaque,
}
