"""A second sharding of a module, taken out."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument


@builder
def shard_once(code: Code, call: ir.Call) -> Fix:
    """Takes ``call`` away, with the loop around it if that does nothing else."""
    require_exact(code)
    module = module_argument(call)
    if module is None:
        raise NoFixError(f"`{code.short(call)}` does not show which argument is the module")
    title = f"take `{code.short(call)}` away"
    return Fix(title, Safety.UNSAFE, (_removal(code, call, module.value),))


def _removal(code: Code, call: ir.Call, module: ir.Expr) -> Edit:
    statement = code.statement(call)
    useless = isinstance(statement, ir.Expression) and statement.value is call
    if isinstance(statement, ir.Assign) and statement.value is call:
        useless = [dotted(target) for target in statement.targets] == [dotted(module)]
    if not useless:
        return code.edit(call.start, call.end, code.slice(module))
    block = code.block(statement)
    if len(block.statements) == 1 and isinstance(block.owner, ir.For) and not block.owner.orelse:
        statement, block = block.owner, code.block(block.owner)
    if len(block.statements) == 1 and not isinstance(block.owner, ir.Module):
        raise NoFixError(f"`{code.short(statement)}` is all that its block does")
    return code.delete_lines(*code.extent(statement))
