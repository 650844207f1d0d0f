"""Attributes and subscripts: what is read of a value."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.events import Unwrap
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.comparison import compare
from fsdplint.engine.execute.elements import BY_RANK, element_of, hashable, named_items
from fsdplint.engine.execute.names import Names
from fsdplint.engine.execute.state import Frame
from fsdplint.engine.values import (
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Identity,
    Inner,
    Mapping,
    Method,
    Object,
    Parameters,
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
from fsdplint.knowledge.checkpoints import PLAIN_ENTRIES
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.ranks import ATTRIBUTES, VARIABLES, Role

# Attributes that read as a bound method even where no class is known to define them.
_BOUND_METHODS = frozenset(
    {"forward", "no_sync", "parameters", "named_parameters", "state_dict", "step"}
)


class Attributes(Names):
    @abstractmethod
    def evaluate(self, node: ir.Expr, frame: Frame) -> Value: ...

    @abstractmethod
    def invoke(
        self,
        function: FunctionValue,
        args: list[Value],
        keywords: dict[str, Value],
        frame: Frame,
        node: ir.Node,
    ) -> Value: ...

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
            if fsdp1:
                return Inner((value,), value.taint)
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
        # A slice; of an element that is chosen by the rank, parts may be alike on all.
        sliced = isinstance(node.index, ir.Opaque) and isinstance(value, Object)
        if sliced and isinstance(value, Object) and taint_of(index) & Taint.RANK:
            return self.rows_of_rank(value)
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
            return self.entry(value, index)
        if isinstance(value, Parameters):
            return value
        if isinstance(value, Symbol) and value.name == "os.environ":
            return self.environment(index)
        if isinstance(value, Object):
            return self.object_item(value, index)
        return self.unknown(taint_of(value, index), key=("item", key_of(value), key_of(index)))

    def entry(self, state: StateDict, key: Value) -> Value:
        """The value in a state dict under one key."""
        whole = state.optimizer is not None and not state.element
        if whole and isinstance(key, Const) and key.value in PLAIN_ENTRIES:
            return self.unknown()
        return replace(state, element=True, escaped=False, taint=Taint.NONE)

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

    def rows_of_rank(self, value: Object) -> Value:
        """What a slice that starts at the rank takes of ``value``."""
        element = element_of(self, value)
        if not isinstance(element, Object) or element.cls:
            return element
        if BY_RANK not in value.elements:
            value.elements[BY_RANK] = self.part(value, "[]", taint=element.taint | Taint.RANK)
        return value.elements[BY_RANK]


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
