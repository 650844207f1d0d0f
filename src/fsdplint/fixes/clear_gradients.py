"""Clear gradients by the optimizer rather than by the model."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder


@builder
def clear_by_optimizer(code: Code, node: ir.Node, optimizer: str | None) -> Fix:
    """Replace ``model.zero_grad()``, or a loop that sets each ``grad`` to None.

    Args:
        node: the call, or the attribute that is set.
        optimizer: the name of the optimizer, None if the code around has none.
    """
    if optimizer is None:
        raise NoFixError("no optimizer has a name here; call its `zero_grad` by hand")
    title = f"clear the gradients of `{optimizer}`"
    if isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
        model = node.func.value
        return Fix(title, Safety.UNSAFE, (code.edit(model.start, model.end, optimizer),))
    loop = code.block(code.statement(node)).owner
    if not isinstance(loop, ir.For) or len(loop.body) != 1 or loop.orelse:
        raise NoFixError(
            f"`{code.short(code.statement(node))}` is not all of a loop; call "
            f"`{optimizer}.zero_grad()` instead by hand"
        )
    if code.comments(loop.start, loop.end):
        raise NoFixError("a comment is in the loop")
    return Fix(title, Safety.UNSAFE, (code.edit(loop.start, loop.end, f"{optimizer}.zero_grad()"),))
