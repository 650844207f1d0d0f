"""What is called, as it is written."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.program import Program


def called(program: Program, path: str, node: ir.Node) -> tuple[str, ir.Function] | None:
    """The function of the project that a call, or the call that a statement consists of, means by
    its name, and the file that it is in."""
    call = node.value if isinstance(node, (ir.Expression, ir.Assign, ir.Return)) else node
    name = call.func.id if isinstance(call, ir.Call) and isinstance(call.func, ir.Name) else ""
    unit = program.project.unit(Path(path))
    found = None if unit is None else program.project.function(unit, name)
    return None if found is None else (found[0].path, found[1])
