"""Names: variables, and what an import binds once it is read."""

from __future__ import annotations

import builtins
from abc import abstractmethod

from fsdplint.engine import ir
from fsdplint.engine.execute.state import Frame, State
from fsdplint.engine.imports import spelled
from fsdplint.engine.unit import Unit
from fsdplint.engine.values import (
    Choice,
    Imported,
    ModuleScope,
    Scope,
    Symbol,
    UnitValue,
    Value,
    choice,
)
from fsdplint.knowledge.names import canonical

_UNREAD = frozenset({Imported, Choice})


class Names(State):
    @abstractmethod
    def imported_scope(self, unit: Unit) -> ModuleScope: ...

    @abstractmethod
    def waited_for(self, name: str, scope: ModuleScope) -> Value: ...

    def name(self, node: ir.Name, frame: Frame) -> Value:
        return self.lookup(node.id, frame.scope)

    def lookup(self, name: str, scope: Scope) -> Value:
        current: Scope | None = scope
        while current is not None:
            value = current.names.get(name)
            if value is not None and type(value) not in _UNREAD:
                return value
            if isinstance(value, (Imported, Choice)):
                value = current.names[name] = self.read_first(value)
            elif value is None and isinstance(current, ModuleScope) and name in current.waiting:
                value = current.late.get(name) or self.waited_for(name, current)
                if type(value) in _UNREAD:
                    value = current.late[name] = self.read_first(value)
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
        if library and not imported.expected_to_fail:
            module = imported.module or name
            self.note_missing(module, imported.level, imported.unit)
        if library and not imported.level:
            return Symbol(canonical(submodule))
        self.met_unread()
        return self.unknown(key=("import", imported.module, name))

    def note_missing(self, module: str, level: int, importer: Unit) -> None:
        """Note an import of the project's own code that is not there."""
        if self.project.lacks(module, level, importer):
            reason = f"the import of `{spelled(module, level)}` resolves to no file"
            self.project.stop_early(self.trace.path, self.trace.entry, reason)

    def member(self, unit: Unit, name: str) -> Value | None:
        """A variable of an imported module, or a submodule of an imported package."""
        scope = self.imported_scope(unit)
        if scope.has(name):
            return self.lookup(name, scope)
        found = self.project.find(name, 1, unit)
        inner = None if found is None else self.project.unit(found)
        return None if inner is None else UnitValue(inner)
