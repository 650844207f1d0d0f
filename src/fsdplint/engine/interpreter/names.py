"""Names: variables, import statements, and what an import binds once it is read."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.interpreter.deferral import registers, top_level
from fsdplint.engine.interpreter.stars import may_bring
from fsdplint.engine.interpreter.state import Flow, Frame, PathState
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Imported,
    ModuleScope,
    Scope,
    Symbol,
    UnitValue,
    Value,
    choice,
)
from fsdplint.engine.project.exports import names_brought
from fsdplint.engine.project.imports import spelled
from fsdplint.engine.project.unit import Unit
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.standard_library import TYPE_CHECKING

_TYPE_CHECKING = ("symbol", TYPE_CHECKING)  # the key of its guard
_UNREAD = frozenset({Imported, Choice})
# What Python gives each module, beside its name.
_OF_MODULES = frozenset({"__file__", "__doc__", "__package__", "__spec__", "__path__"})


def variable(state: PathState, node: ir.Name, frame: Frame) -> Value:
    return lookup(state, node.id, frame.scope)


def lookup(state: PathState, name: str, scope: Scope) -> Value:
    """Return the value of a name; imports and deferred statements are followed when first read."""
    current: Scope | None = scope
    while current is not None:
        value = current.names.get(name)
        if value is not None and type(value) not in _UNREAD:
            return value
        if isinstance(value, (Imported, Choice)):
            current.names[name] = state.unknown()  # for a file that it is imported from and back
            value = current.names[name] = _read_first(state, value)
        elif value is None and isinstance(current, ModuleScope) and name in current.deferred:
            value = current.late.get(name) or _run_deferred(state, name, current)
            if type(value) in _UNREAD:
                current.late[name] = state.unknown()
                value = current.late[name] = _read_first(state, value)
        if value is not None:
            return value
        outermost, current = current, current.parent
    value = _of_stars(state, name, outermost)
    if value is not None:
        outermost.names[name] = value
        return value
    if hasattr(builtins, name):
        return Symbol(f"builtins.{name}")
    if name not in _OF_MODULES:
        state.note_unread_code()
    value = outermost.names[name] = state.unknown(key=("name", outermost.unit.path, name))
    return value


def _read_first(state: PathState, value: Value) -> Value:
    """Return the value of an import, or of each alternative of one."""
    if isinstance(value, Imported):
        return _import_value(state, value)
    if isinstance(value, Choice) and any(isinstance(o, Imported) for o in value.options):
        return choice([_read_first(state, option) for option in value.options], value.taint)
    return value


def _import_value(state: PathState, imported: Imported) -> Value:
    found = state.project.find(imported.module, imported.level, imported.unit)
    unit = None if found is None else state.project.unit(found)
    if imported.name is None:
        return Symbol(canonical(imported.module)) if unit is None else UnitValue(unit)
    if unit is not None and unit is not imported.unit:
        member = member_of(state, unit, imported.name)
        if member is not None:
            return member
    return _imported_submodule(state, imported, imported.name, found is None)


def module_named(state: PathState, name: str, importer: Unit) -> Value:
    """Return the module that ``importlib.import_module(name)`` gives."""
    return _import_value(state, Imported(importer, name, 0, None))


def _imported_submodule(state: PathState, imported: Imported, name: str, library: bool) -> Value:
    """``from package import module``, also by a package's own ``__init__``."""
    submodule = f"{imported.module}.{name}" if imported.module else name
    found = state.project.find(submodule, imported.level, imported.unit)
    unit = None if found is None else state.project.unit(found)
    if unit is not None:
        return UnitValue(unit)
    if library and not imported.expected_to_fail:
        module = imported.module or name
        note_missing(state, module, imported.level, imported.unit)
    if library and not imported.level:
        return Symbol(canonical(submodule))
    state.note_unread_code()
    return state.unknown(key=("import", imported.module, name))


def note_missing(state: PathState, module: str, level: int, importer: Unit) -> None:
    """Record an early stop for an import of the project's own code that is not there."""
    if state.project.lacks(module, level, importer):
        reason = f"the import of `{spelled(module, level)}` cannot be resolved"
        state.project.stop_early(state.trace.path, state.trace.entry, reason)


def member_of(state: PathState, unit: Unit, name: str) -> Value | None:
    """Return a variable of an imported module, or a submodule of an imported package."""
    scope = imported_scope(state, unit)
    if scope.has(name):
        return lookup(state, name, scope)
    found = state.project.find(name, 1, unit)
    inner = None if found is None else state.project.unit(found)
    return _of_stars(state, name, scope) if inner is None else UnitValue(inner)


def _variable_of(state: PathState, path: Path, name: str) -> Value | None:
    """Return a variable of an imported module; None if it has none of that name."""
    unit = state.project.unit(path)
    scope = None if unit is None else imported_scope(state, unit)
    if scope is None:
        return None
    return lookup(state, name, scope) if scope.has(name) else _of_stars(state, name, scope)


def _of_stars(state: PathState, name: str, scope: Scope) -> Value | None:
    """Return what the last star import for type checkers that has a name brings to a module."""
    if not state.stars.get(scope) or (scope, name) in state.sought:
        return None
    state.sought.add((scope, name))  # files may import each other
    files = (file for file in reversed(state.stars[scope]) if may_bring(state.project, file, name))
    values = (_variable_of(state, file, name) for file in files)
    value = next((each for each in values if each is not None), None)
    state.sought.discard((scope, name))
    return value


def imported_scope(state: PathState, unit: Unit) -> ModuleScope:
    """Return the variables of an imported module, which runs once and decides no branch."""
    if unit not in state.scopes:
        body = top_level(state.project, unit)
        named: dict[str, Value] = {"__name__": Const(unit.path)}
        scope = state.scopes[unit] = ModuleScope(named, None, unit, body.deferred)
        with _import_time(state):
            state.run(body.at_once, Frame(scope, unit))
    return state.scopes[unit]


def _run_deferred(state: PathState, name: str, scope: ModuleScope) -> Value:
    """Run the deferred statement that binds a name, and return the name's value.

    The names have unknown values while it runs, in case it refers to itself. Values that were
    assigned from outside after the import are kept.
    """
    deferred = scope.deferred[name]
    stored = {each: scope.names[each] for each in deferred.names if each in scope.names}
    scope.late.update({each: state.unknown() for each in deferred.names})  # while they are made
    with _import_time(state):
        state.run([deferred.statement], Frame(scope, scope.unit))
    made = {each: scope.names.pop(each) for each in deferred.names if each in scope.names}
    scope.late.update({each: _begun(state, each, made[each], scope.unit) for each in made})
    scope.names.update(stored)  # what was assigned from outside, after the import
    return scope.late[name]


def _begun(state: PathState, name: str, value: Value, unit: Unit) -> Value:
    """Return the value that a module's variable begins with: if None, maybe only at first.

    A function that declares it global sets it later, and what calls that function may not be read,
    as with the process groups of a library that an unknown launcher sets up.
    """
    if isinstance(value, Const) and value.value is None and name in unit.rebound:
        return state.unknown(key=("global", unit.path, name))
    return value


@contextmanager
def _import_time(state: PathState) -> Iterator[None]:
    """Run code that is no part of the path that made it necessary, at any depth."""
    outer = state.guards, state.calls, state.active
    changed = state.oldest_changed
    state.guards, state.calls, state.active = [], [], []
    state.importing += 1
    try:
        yield
    finally:
        state.importing -= 1
        state.guards, state.calls, state.active = outer
        state.oldest_changed = changed  # a class body does not answer for what it makes run


def import_(state: PathState, node: ir.Import, frame: Frame) -> Flow:
    """Bind the names of an ``import`` and run modules that are imported for their effect."""
    for name, alias in node.names:
        bound = name if alias else name.split(".")[0]
        frame.scope.names[alias or bound] = Imported(frame.unit, bound, 0, None)
        if not state.expecting_failure:
            note_missing(state, name, 0, frame.unit)
        if frame.scope.parent is None and not frame.unit.reads_from(alias or bound):
            _run_for_effect(state, name, frame)
    return Flow.NEXT


def _run_for_effect(state: PathState, module: str, frame: Frame) -> None:
    """Run a file whose name is never read: it is imported for what it registers."""
    found = state.project.find(module, 0, frame.unit)
    unit = None if found is None else state.project.unit(found)
    if unit is not None:
        imported_scope(state, unit)


def import_from(state: PathState, node: ir.ImportFrom, frame: Frame) -> Flow:
    """Bind the names of a ``from`` import, after running a module that registers functions."""
    _run_registrations(state, node, frame)
    if node.names:
        for name, alias in node.names:
            imported = Imported(frame.unit, node.module, node.level, name)
            imported.expected_to_fail = state.expecting_failure
            frame.scope.names[alias or name] = imported
    else:
        _import_star(state, node, frame)
    return Flow.NEXT


def _run_registrations(state: PathState, node: ir.ImportFrom, frame: Frame) -> None:
    """Run a file that registers functions; others run when their names are read."""
    found = state.project.find(node.module, node.level, frame.unit)
    sketch = None if found is None else state.project.units.get(found.as_posix())
    if found is None or sketch is None or sketch in state.scopes:
        return
    if not registers(state.project, sketch):
        return
    unit = state.project.unit(found)
    if unit is not None:
        imported_scope(state, unit)


def _import_star(state: PathState, node: ir.ImportFrom, frame: Frame) -> None:
    """Bind all public names of a module that is imported with a star.

    What is imported for a type checker alone does not run in a program; it only says where names
    come from, so that each is looked for when it is read.
    """
    found = state.project.find(node.module, node.level, frame.unit)
    if not state.expecting_failure:
        note_missing(state, node.module, node.level, frame.unit)
    pending = state.stars.setdefault(frame.scope, [])
    if found is not None and any(guard.key == _TYPE_CHECKING for guard in state.guards):
        pending.append(found)
        return
    unit = None if found is None else state.project.unit(found)
    scope = None if unit is None else imported_scope(state, unit)
    names = names_brought(node.module, node.level)
    for name in names if scope is None else (*scope.names, *scope.deferred):
        if not name.startswith("_"):
            imported = Imported(frame.unit, node.module, node.level, name)
            known = None if scope is None else scope.names.get(name)
            if name in frame.scope.names and _is_from(state, known, frame.unit):
                continue  # it got the name from here
            frame.scope.names[name] = imported if known is None else known
    pending += () if scope is None else state.stars.get(scope, ())


def _is_from(state: PathState, value: Value | None, unit: Unit) -> bool:
    """True if a value is an import from ``unit``."""
    if not isinstance(value, Imported):
        return False
    found = state.project.find(value.module, value.level, value.unit)
    return found is not None and found.as_posix() == unit.path
