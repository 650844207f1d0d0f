"""What statements call, as it is written."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.program import Program


def called(program: Program, path: str, statement: ir.Stmt) -> tuple[str, ir.Function] | None:
    """The function of the project that a statement calls by its name, and the file it is in."""
    calls = isinstance(statement, (ir.Expression, ir.Assign, ir.Return))
    call = statement.value if calls else None  # type: ignore[union-attr]  # all have a value
    name = call.func.id if isinstance(call, ir.Call) and isinstance(call.func, ir.Name) else ""
    unit = program.project.unit(Path(path))
    found = None if unit is None else program.project.definition(unit, name)
    if found is None or program.project.unit(Path(found.unit.path)) is None:
        return None
    node = found.unit.node(found)
    return (found.unit.path, node.function) if isinstance(node, ir.FunctionDef) else None
