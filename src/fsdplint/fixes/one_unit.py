"""Two modules of one model made one unit."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument


@builder
def one_unit(code: Code, call: ir.Call, inside: str, outside: str, other: ir.Call | None) -> Fix:
    """Gives ``call`` both modules.

    Args:
        inside: the path below the model of the module it shards.
        outside: that of the one it does not.
        other: the call that shards that one, which is taken away.
    """
    require_exact(code)
    argument = module_argument(call)
    name = None if argument is None else dotted(argument.value)
    if argument is None or name is None or not name.endswith(inside):
        raise NoFixError(f"`{code.short(call)}` does not name the module by its path")
    second = name.removesuffix(inside) + outside
    if not all(part.isidentifier() for part in second.split(".")):
        raise NoFixError(f"`{second}` is no plain name")
    edits = [code.edit(argument.value.start, argument.value.end, f"[{name}, {second}]")]
    if other is not None:
        statement = code.statement(other)
        alone = isinstance(statement, ir.Expression) and statement.value is other
        block = code.block(code.statement(call))
        given = [code.slice(a.value) for a in other.args[1:]]
        if not alone or statement not in block.statements:
            raise NoFixError(f"`{code.short(other)}` cannot be taken away")
        if given != [code.slice(a.value) for a in call.args[1:]]:
            raise NoFixError("the two modules are sharded with different arguments")
        edits.append(code.delete_lines(*code.extent(statement)))
    return Fix(f"shard `{name}` and `{second}` together", Safety.UNSAFE, tuple(edits))
