"""Stores: what an assignment to an attribute or an item changes."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.events import Repoint, Store
from fsdplint.engine.execute.calls import is_module, is_unit
from fsdplint.engine.execute.definitions import Definitions
from fsdplint.engine.execute.elements import container_items, store_key
from fsdplint.engine.execute.state import Frame
from fsdplint.engine.values import (
    ClassValue,
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    Sequence,
    Taint,
    Tensor,
    UnitValue,
    Value,
    choice,
    read_from,
    resolved,
    taint_of,
)


class Stores(Definitions):
    def store_attribute(
        self, owner: Value, target: ir.Attribute, value: Value, frame: Frame
    ) -> None:
        if isinstance(owner, Object):
            self.overwritten(owner, value, target, frame)
            if isinstance(value, Const) and target.attr in frame.unit.counters:
                value = self.unknown(Taint.ELEMENT)  # a step count is no constant
            elif isinstance(value, Const) and self.undecided:
                value = self.or_as_before(owner, value, target, frame)
            owner.attrs[target.attr] = value
            self.stored(owner, target.attr, value, target, frame)
            if target.attr == "param_groups":
                self.emit(Repoint(self.tick(), self.site(target, frame), owner))
        elif isinstance(owner, Parameters):
            self.emit(Store(self.tick(), self.site(target, frame), owner, target.attr, value))
            if target.attr not in ("grad", "requires_grad"):
                self.used(self.tick(), "=", [owner], target, frame)
        elif isinstance(owner, ClassValue):
            owner.attrs[target.attr] = value
        elif isinstance(owner, UnitValue):
            self.imported_scope(owner.unit).names[target.attr] = value

    def or_as_before(
        self, owner: Object, value: Const, target: ir.Attribute, frame: Frame
    ) -> Value:
        """A constant stored in one of two arms that both run: the attribute may keep its value."""
        declared = isinstance(owner.cls, ClassValue) and owner.cls.lookup(target.attr) is not None
        if target.attr not in owner.attrs and owner.origin is Origin.ALLOCATED and not declared:
            return value
        before = self.read(owner, target.attr, target, frame)
        return choice([before, value], taint_of(before, value))

    def stored(self, owner: Object, name: str, value: Value, node: ir.Node, frame: Frame) -> None:
        """An attribute was assigned; a module in it is a part of the owner now."""
        self.compose(owner, value, f".{name}")
        self.note_tie(owner, name)
        if is_module(owner) or name == "requires_grad":
            self.emit(Store(self.tick(), self.site(node, frame), owner, name, value))

    def note_tie(self, owner: Object, name: str) -> None:
        """Tracks a model that gets another weight once it is sharded."""
        whole = [owner, *owner.ancestors()]
        if name == "weight" and any(is_unit(each) for each in whole):
            self.track(whole[-1])

    def overwritten(self, owner: Object, value: Value, target: ir.Node, frame: Frame) -> None:
        """A store of something new into a tracked object, such as a tensor for a parameter."""
        inner = resolved(value)
        own = isinstance(inner, Object) and owner in inner.ancestors()
        if self.tracked and not own and not isinstance(value, Const):
            self.changed(self.tick(), "=", {owner}, target, frame)

    def compose(self, owner: Object, value: Value, step: str) -> None:
        """A module stored in another is a part of it."""
        value = resolved(value)
        if not isinstance(value, Object) or value.parent is not None or value is owner:
            return
        if is_module(owner) and value not in owner.ancestors():
            self.attach(value, owner, step)
            for index, item in enumerate(container_items(value)):
                if item.parent is None:
                    self.attach(item, value, f"[{index}]")

    def store_item(self, target: ir.Subscript, value: Value, frame: Frame) -> None:
        owner = resolved(self.evaluate(target.value, frame))
        index = self.evaluate(target.index, frame)
        if isinstance(owner, Mapping):
            store_key(owner, index, value)
        elif isinstance(owner, Sequence):
            owner.rest.append(value)
        elif isinstance(owner, (Parameters, Tensor)):
            self.used(self.tick(), "=", [owner], target, frame)
        elif isinstance(owner, Object):
            self.overwritten(owner, value, target, frame)
            if isinstance(index, Const) and isinstance(index.value, (int, str)):
                owner.elements[index.value] = value
            if read_from(owner) is not None and read_from(resolved(value)) is None:
                owner.escaped = self.tick()  # it is no longer what the file holds
            self.compose(owner, value, "[]")
            self.note_repointing(owner, index, target, frame)

    def note_repointing(self, owner: Object, index: Value, target: ir.Node, frame: Frame) -> None:
        """``optimizer.param_groups[0]["params"] = …`` gives the optimizer other parameters."""
        if isinstance(index, Const) and index.value != "params":
            return
        for whole in (owner, *owner.ancestors()):
            if whole.step == ".param_groups" and whole.parent is not None:
                self.emit(Repoint(self.tick(), self.site(target, frame), whole.parent))
