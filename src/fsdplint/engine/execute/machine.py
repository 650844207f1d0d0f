"""Where a program can start, and the machine that follows one path from there."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from fsdplint.early_stop import TOP_LEVEL
from fsdplint.engine import ir
from fsdplint.engine.accelerators import prepares_sharded
from fsdplint.engine.events import Call, Event, Shard
from fsdplint.engine.execute.construction import run_by_construction
from fsdplint.engine.execute.effects import Effects
from fsdplint.engine.execute.state import Frame
from fsdplint.engine.unit import Definition, Unit
from fsdplint.engine.values import Arguments, ClassValue, Const, FunctionValue, Scope


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a program can start: a file's top level, a function, or a method of a new object."""

    unit: Unit
    definition: Definition | None = None
    method: Definition | None = None

    @property
    def name(self) -> str:
        parts = [part.name for part in (self.definition, self.method) if part is not None]
        return ".".join(parts) or TOP_LEVEL


class Machine(Effects):
    """One path through one entry.

    Attributes:
        endless: functions that are not worth entering before something is sharded.
    """

    endless: Container[ir.Function] = ()

    def begin(self, function: ir.Function) -> None:
        super().begin(function)
        if function in self.endless and not self.may_have_sharded():
            self.give_up()

    def run_out(self) -> None:
        most = self.project.budget.path_steps
        if self.allowed < most and self.may_have_sharded():
            self.allowed = most
        else:
            super().run_out()

    def may_have_sharded(self) -> bool:
        return any(map(_may_shard, self.trace.events))

    def start(self, entry: Entry) -> None:
        if entry.definition is None:
            scope = Scope({"__name__": Const("__main__")}, None, entry.unit)
            self.group_up = False
            self.run(entry.unit.module.body, Frame(scope, entry.unit))
        else:
            self.start_definition(entry, entry.definition)

    def start_definition(self, entry: Entry, definition: Definition) -> None:
        frame = Frame(self.imported_scope(entry.unit), entry.unit)
        value = self.lookup(definition.name, frame.scope)
        node = definition.unit.node(definition)
        if isinstance(value, FunctionValue) and node is not None:
            self.invoke(value, self.open_parameters(value, None), {}, frame, node, more=True)
        elif isinstance(value, ClassValue):
            self.start_method(entry, value, frame)

    def start_method(self, entry: Entry, cls: ClassValue, frame: Frame) -> None:
        init = cls.lookup("__init__")
        given = (
            self.open_parameters(init, self.unknown())[1:]
            if isinstance(init, FunctionValue)
            else []
        )
        made = self.instantiate(cls, Arguments(given, {}, open=True), cls.node, frame)
        if entry.method is None or entry.method.name in run_by_construction(self.project, cls):
            return
        method, node = cls.lookup(entry.method.name), entry.unit.node(entry.method)
        if isinstance(method, FunctionValue) and node is not None:
            self.invoke(method, self.open_parameters(method, made), {}, frame, node, more=True)


def _may_shard(event: Event) -> bool:
    return isinstance(event, Shard) or (isinstance(event, Call) and prepares_sharded(event))
