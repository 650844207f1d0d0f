"""The backward before the loss is reduced for the log."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted


@builder
def backward_first(code: Code, backward: ir.Node, scalings: Sequence[ir.Node]) -> Fix:
    """Moves the statement of ``backward`` above those that make the loss a mean.

    Args:
        scalings: the call of ``all_reduce``, and the division if there is one.
    """
    require_exact(code)
    reduction = scalings[0]
    assert isinstance(reduction, ir.Call)
    loss = dotted(reduction.args[0].value) if reduction.args else None
    moved = code.statement(backward)
    if not isinstance(moved, ir.Expression) or moved.value is not backward:
        raise NoFixError(f"`{code.short(backward)}` is not a statement of its own")
    if loss is None or not any(dotted(node) == loss for node in ir.walk(backward)):
        raise NoFixError(f"`{code.short(backward)}` does not name what is reduced")
    statements = {code.statement(node) for node in scalings}
    block = code.block(moved).statements
    end = block.index(moved)
    start = end
    while start and statements and _inside(block[start - 1]) <= statements:
        start -= 1
        statements -= _inside(block[start])
    if statements:
        raise NoFixError("more than the reduction and the division is before the backward")
    for node in scalings:
        if not _only_scales(code.statement(node), loss):
            raise NoFixError(f"`{code.short(code.statement(node))}` may do more than scale it")
    at, _ = code.extent(block[start])
    first, last = code.extent(moved)
    text = code.text[first:last]
    line = text if text.endswith(("\n", "\r")) else text + code.newline
    edits = (code.insert_lines(at, line), code.edit(first, last, ""))
    title = f"run `{code.short(moved)}` before the loss is reduced"
    return Fix(title, Safety.UNSAFE, edits)


def _inside(statement: ir.Stmt) -> set[ir.Stmt]:
    """The statements that a branch without another arm consists of; of any other, itself."""
    if isinstance(statement, ir.If) and not statement.orelse:
        return set(statement.body)
    return {statement}


def _only_scales(statement: ir.Stmt, loss: str) -> bool:
    """Whether a statement changes nothing but ``loss``."""
    if isinstance(statement, ir.Expression):
        return isinstance(statement.value, ir.Call)
    if isinstance(statement, ir.AugAssign):
        return dotted(statement.target) == loss
    if isinstance(statement, ir.Assign):
        return [dotted(target) for target in statement.targets] == [loss]
    return False
