"""Functions, classes and imports: what their statements bind, and modules that are imported."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager

from fsdplint.engine import ir
from fsdplint.engine.execute.calls import Calls
from fsdplint.engine.execute.registering import registers
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.execute.waiting import top_level
from fsdplint.engine.link import names_brought
from fsdplint.engine.unit import Unit
from fsdplint.engine.values import (
    ClassValue,
    Const,
    FunctionValue,
    Imported,
    ModuleScope,
    Object,
    Scope,
    Symbol,
    Taint,
    Value,
    class_names,
    resolved,
)
from fsdplint.knowledge.packages import may_set_up
from fsdplint.knowledge.ranks import FIRST_ONLY, FIRST_ONLY_METHODS


class Definitions(Calls):
    def imported_scope(self, unit: Unit) -> ModuleScope:
        """The variables of an imported module; it runs once, following no branch apart."""
        if unit not in self.scopes:
            body = top_level(self.project, unit)
            named: dict[str, Value] = {"__name__": Const(unit.path)}
            scope = self.scopes[unit] = ModuleScope(named, None, unit, body.waiting)
            with self.import_time():
                self.run(body.at_once, Frame(scope, unit))
        return self.scopes[unit]

    def waited_for(self, name: str, scope: ModuleScope) -> Value:
        """A variable of an imported module that is read for the first time."""
        waiting = scope.waiting[name]
        stored = {each: scope.names[each] for each in waiting.names if each in scope.names}
        scope.late.update({each: self.unknown() for each in waiting.names})  # while they are made
        with self.import_time():
            self.run([waiting.statement], Frame(scope, scope.unit))
        made = {each: scope.names.pop(each) for each in waiting.names if each in scope.names}
        scope.late.update(made)
        scope.names.update(stored)  # what was assigned from outside, after the import
        return scope.late[name]

    @contextmanager
    def import_time(self) -> Iterator[None]:
        """What runs inside is no part of the path that made it necessary."""
        outer = self.guards, self.calls, self.active
        self.guards, self.calls, self.active = [], [], []
        self.importing += 1
        try:
            yield
        finally:
            self.importing -= 1
            self.guards, self.calls, self.active = outer

    def function_def(self, node: ir.FunctionDef, frame: Frame) -> Flow:
        made = FunctionValue(node.function, frame.scope)
        frame.scope.names[node.function.name] = made
        wrapper = self.decorate(node.function.decorators, made, frame)
        if wrapper is not None and self.tells_ranks_apart(wrapper):
            frame.scope.names[node.function.name] = wrapper
        return Flow.NEXT

    def tells_ranks_apart(self, wrapper: FunctionValue) -> bool:
        """Whether what a decorator made of a function runs it on some ranks only."""
        names = {parameter.name: self.unknown() for parameter in wrapper.function.parameters}
        frame = Frame(Scope({**names}, wrapper.scope, wrapper.scope.unit), wrapper.scope.unit)
        nodes = [node for statement in wrapper.function.body for node in ir.walk(statement)]
        tests = [node.test for node in nodes if isinstance(node, (ir.If, ir.Case, ir.Conditional))]
        self.importing += 1
        try:
            return any(self.evaluate(test, frame).taint & Taint.RANK for test in tests)
        finally:
            self.importing -= 1

    def decorate(
        self, decorators: Items[ir.Expr], made: Value, frame: Frame
    ) -> FunctionValue | None:
        """A registry notes what it decorates; returns the function that one puts in its place."""
        wrapper = None
        for decorator in reversed(decorators):
            value = resolved(self.evaluate(decorator, frame))
            if isinstance(value, Symbol) and may_set_up(value.name):
                self.met_unread()  # it runs before what it decorates
            if isinstance(value, FunctionValue):
                result = resolved(self.invoke(value, [made], {}, frame, decorator))
                if isinstance(result, FunctionValue) and result is not made:
                    wrapper = result
            elif isinstance(made, FunctionValue) and _is_for_first(value):
                first = self.guard(Const(True, Taint.RANK), decorator, True, frame)
                made.only = first._replace(ranks=frozenset({0}))
        return wrapper

    def class_def(self, node: ir.ClassDef, frame: Frame) -> Flow:
        frame.scope.names[node.name] = cls = self.make_class(node, frame)
        self.decorate(node.decorators, cls, frame)
        return Flow.NEXT

    def make_class(self, node: ir.ClassDef, frame: Frame) -> ClassValue:
        bases = tuple(self.evaluate(base, frame) for base in node.bases)
        cls = ClassValue(node, frame.scope, bases, {})
        body = Frame(Scope(cls.attrs, frame.scope, frame.unit), frame.unit)
        self.run(node.body, body)
        for name, value in cls.attrs.items():
            if isinstance(value, FunctionValue):
                # Names in a method are looked up past the class body.
                outer = frame.scope if value.scope is body.scope else value.scope
                cls.attrs[name] = FunctionValue(value.function, outer, cls, only=value.only)
        return cls

    def import_(self, node: ir.Import, frame: Frame) -> Flow:
        for name, alias in node.names:
            bound = name if alias else name.split(".")[0]
            frame.scope.names[alias or bound] = Imported(frame.unit, bound, 0, None)
            if not self.expecting_failure:
                self.note_missing(name, 0, frame.unit)
            if frame.scope.parent is None and not frame.unit.reads_from(alias or bound):
                self.run_for_effect(name, frame)
        return Flow.NEXT

    def run_for_effect(self, module: str, frame: Frame) -> None:
        """A file whose name is never read is imported for what it registers, or takes back."""
        found = self.project.find(module, 0, frame.unit)
        unit = None if found is None else self.project.unit(found)
        if unit is not None:
            self.imported_scope(unit)

    def import_from(self, node: ir.ImportFrom, frame: Frame) -> Flow:
        self.run_registrations(node, frame)
        if node.names:
            for name, alias in node.names:
                imported = Imported(frame.unit, node.module, node.level, name)
                imported.expected_to_fail = self.expecting_failure
                frame.scope.names[alias or name] = imported
        else:
            self.import_star(node, frame)
        return Flow.NEXT

    def run_registrations(self, node: ir.ImportFrom, frame: Frame) -> None:
        """Names are resolved when they are read, but a file that registers functions runs now."""
        found = self.project.find(node.module, node.level, frame.unit)
        sketch = None if found is None else self.project.units.get(found.as_posix())
        if found is None or sketch is None or sketch in self.scopes:
            return
        if not registers(self.project, sketch):
            return
        unit = self.project.unit(found)
        if unit is not None:
            self.imported_scope(unit)

    def import_star(self, node: ir.ImportFrom, frame: Frame) -> None:
        found = self.project.find(node.module, node.level, frame.unit)
        unit = None if found is None else self.project.unit(found)
        scope = None if unit is None else self.imported_scope(unit)
        if not self.expecting_failure:
            self.note_missing(node.module, node.level, frame.unit)
        names = names_brought(node.module, node.level)
        for name in names if scope is None else (*scope.names, *scope.waiting):
            if not name.startswith("_"):
                imported = Imported(frame.unit, node.module, node.level, name)
                known = None if scope is None else scope.names.get(name)
                frame.scope.names[name] = imported if known is None else known


def _is_for_first(decorator: Value) -> bool:
    """Whether a library's decorator lets rank 0 only run a function."""
    if isinstance(decorator, Symbol):
        return decorator.name in FIRST_ONLY
    if not isinstance(decorator, Object) or decorator.parent is None:
        return False
    accelerate = any(name.startswith("accelerate.") for name in class_names(decorator.parent.cls))
    return accelerate and decorator.step[1:] in FIRST_ONLY_METHODS
