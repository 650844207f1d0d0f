"""What a call says as it is written: its arguments and its function."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.program import Program


def argument(call: ir.Node, position: int, keyword: str) -> ir.Argument | None:
    """An argument as it is written in a call, if it is written there and none before is spread."""
    if not isinstance(call, ir.Call):
        return None
    named = next((each for each in call.args if each.keyword == keyword), None)
    plain = [each for each in call.args if each.keyword is None]
    before = plain[: position + 1]
    if named is not None or not 0 <= position < len(before) or any(e.star for e in before):
        return named
    return before[position]


def called(program: Program, path: str, node: ir.Node) -> tuple[str, ir.Function] | None:
    """The function of the project that a call, or the call that a statement consists of, means by
    its name or as one of a module, and the file that it is in."""
    call = node.value if isinstance(node, (ir.Expression, ir.Assign, ir.Return)) else node
    func = call.func if isinstance(call, ir.Call) else None
    unit = program.project.unit(Path(path))
    if unit is not None and isinstance(func, ir.Attribute) and isinstance(func.value, ir.Name):
        unit = program.project.module(unit, func.value.id)
    name = ir.last_name(func) if isinstance(func, (ir.Name, ir.Attribute)) else ""
    found = None if unit is None else program.project.function(unit, name)
    return None if found is None else (found[0].path, found[1])
