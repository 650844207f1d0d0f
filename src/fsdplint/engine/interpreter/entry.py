"""Where a program can start, and how a path from there begins."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.engine.interpreter.classes import instantiate
from fsdplint.engine.interpreter.construction import run_by_construction
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.names import imported_scope, lookup
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import Arguments, ClassValue, Const, FunctionValue, Scope
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.finding import TOP_LEVEL


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


def start(state: PathState, entry: Entry) -> None:
    if entry.definition is None:
        scope = Scope({"__name__": Const("__main__")}, None, entry.unit)
        state.group_up = False
        state.run(entry.unit.module.body, Frame(scope, entry.unit))
    else:
        _start_definition(state, entry, entry.definition)


def _start_definition(state: PathState, entry: Entry, definition: Definition) -> None:
    frame = Frame(imported_scope(state, entry.unit), entry.unit)
    value = lookup(state, definition.name, frame.scope)
    node = definition.unit.node(definition)
    if isinstance(value, FunctionValue) and node is not None:
        invoke(state, value, open_parameters(state, value, None), {}, frame, node, more=True)
    elif isinstance(value, ClassValue):
        _start_method(state, entry, value, frame)


def _start_method(state: PathState, entry: Entry, cls: ClassValue, frame: Frame) -> None:
    init = cls.lookup("__init__")
    given = (
        open_parameters(state, init, state.unknown())[1:] if isinstance(init, FunctionValue) else []
    )
    made = instantiate(state, cls, Arguments(given, {}, open=True), cls.node, frame)
    if entry.method is None or entry.method.name in run_by_construction(state.project, cls):
        return
    method, node = cls.lookup(entry.method.name), entry.unit.node(entry.method)
    if isinstance(method, FunctionValue) and node is not None:
        invoke(state, method, open_parameters(state, method, made), {}, frame, node, more=True)
