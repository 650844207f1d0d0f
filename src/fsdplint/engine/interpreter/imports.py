"""Imports: what their statements bind, and modules that run when they are imported."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter.names import imported_scope, note_missing
from fsdplint.engine.interpreter.registering import registers
from fsdplint.engine.interpreter.state import Flow, Frame, PathState
from fsdplint.engine.interpreter.values import Imported
from fsdplint.engine.project.project import names_brought


def import_(state: PathState, node: ir.Import, frame: Frame) -> Flow:
    for name, alias in node.names:
        bound = name if alias else name.split(".")[0]
        frame.scope.names[alias or bound] = Imported(frame.unit, bound, 0, None)
        if not state.expecting_failure:
            note_missing(state, name, 0, frame.unit)
        if frame.scope.parent is None and not frame.unit.reads_from(alias or bound):
            _run_for_effect(state, name, frame)
    return Flow.NEXT


def _run_for_effect(state: PathState, module: str, frame: Frame) -> None:
    """A file whose name is never read is imported for what it registers, or takes back."""
    found = state.project.find(module, 0, frame.unit)
    unit = None if found is None else state.project.unit(found)
    if unit is not None:
        imported_scope(state, unit)


def import_from(state: PathState, node: ir.ImportFrom, frame: Frame) -> Flow:
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
    """Names are followed when they are read, but a file that registers functions runs now."""
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
    found = state.project.find(node.module, node.level, frame.unit)
    unit = None if found is None else state.project.unit(found)
    scope = None if unit is None else imported_scope(state, unit)
    if not state.expecting_failure:
        note_missing(state, node.module, node.level, frame.unit)
    names = names_brought(node.module, node.level)
    for name in names if scope is None else (*scope.names, *scope.waiting):
        if not name.startswith("_"):
            imported = Imported(frame.unit, node.module, node.level, name)
            known = None if scope is None else scope.names.get(name)
            frame.scope.names[name] = imported if known is None else known
