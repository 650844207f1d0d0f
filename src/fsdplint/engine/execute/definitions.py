"""Functions, classes and imports: what their statements bind, and modules that are imported."""

from __future__ import annotations

from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.execute.calls import Calls
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.link import Unit
from fsdplint.engine.values import (
    ClassValue,
    Const,
    FunctionValue,
    Imported,
    Scope,
    Value,
    resolved,
)


class Definitions(Calls):
    def imported_scope(self, unit: Unit) -> Scope:
        """The variables of an imported module; its body runs once, following no branch apart."""
        if unit not in self.scopes:
            scope = self.scopes[unit] = Scope({"__name__": Const(unit.path)}, None, unit)
            outer = self.guards, self.calls, self.active
            self.guards, self.calls, self.active = [], [], []
            self.importing += 1
            try:
                self.run(unit.module.body, Frame(scope, unit))
            finally:
                self.importing -= 1
                self.guards, self.calls, self.active = outer
        return self.scopes[unit]

    def function_def(self, node: ir.FunctionDef, frame: Frame) -> Flow:
        made = FunctionValue(node.function, frame.scope)
        frame.scope.names[node.function.name] = made
        self.decorate(node.function.decorators, made, frame)
        return Flow.NEXT

    def decorate(self, decorators: Items[ir.Expr], made: Value, frame: Frame) -> None:
        """A registry notes what it decorates; what it returns is taken to be that again."""
        for decorator in reversed(decorators):
            value = resolved(self.evaluate(decorator, frame))
            if isinstance(value, FunctionValue):
                self.invoke(value, [made], {}, frame, decorator)

    def class_def(self, node: ir.ClassDef, frame: Frame) -> Flow:
        bases = tuple(self.evaluate(base, frame) for base in node.bases)
        cls = ClassValue(node, frame.scope, bases, {})
        body = Frame(Scope(cls.attrs, frame.scope, frame.unit), frame.unit)
        self.run(node.body, body)
        for name, value in cls.attrs.items():
            if isinstance(value, FunctionValue):
                # Names in a method are looked up past the class body.
                cls.attrs[name] = FunctionValue(value.function, frame.scope, cls)
        frame.scope.names[node.name] = cls
        self.decorate(node.decorators, cls, frame)
        return Flow.NEXT

    def import_(self, node: ir.Import, frame: Frame) -> Flow:
        for name, alias in node.names:
            bound = name if alias else name.split(".")[0]
            frame.scope.names[alias or bound] = Imported(frame.unit, bound, 0, None)
        return Flow.NEXT

    def import_from(self, node: ir.ImportFrom, frame: Frame) -> Flow:
        self.run_registrations(node, frame)
        if node.names:
            for name, alias in node.names:
                frame.scope.names[alias or name] = Imported(
                    frame.unit, node.module, node.level, name
                )
        else:
            self.import_star(node, frame)
        return Flow.NEXT

    def run_registrations(self, node: ir.ImportFrom, frame: Frame) -> None:
        """Names are resolved when they are read, but a file that registers functions runs now."""
        found = self.project.find(node.module, node.level, frame.unit)
        unit = None if found is None else self.project.units.get(found.as_posix())
        if unit is not None and unit.registers and unit not in self.scopes:
            self.imported_scope(unit)

    def import_star(self, node: ir.ImportFrom, frame: Frame) -> None:
        found = self.project.find(node.module, node.level, frame.unit)
        unit = None if found is None else self.project.unit(found)
        if unit is not None:
            public = {k: v for k, v in self.imported_scope(unit).names.items() if k[:1] != "_"}
            frame.scope.names.update(public)
