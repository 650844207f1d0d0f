"""The modules of a container sharded one by one."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted, fresh
from fsdplint.fixes.shard_blocks import module_argument


@builder
def container_loop(code: Code, call: ir.Call, keyed: bool, always: bool) -> Fix:
    """Puts a loop over the container that ``call`` shards in the place of the call.

    Args:
        keyed: the container is a dict.
        always: the call is given nothing else, of which the loop would shard the parts.
    """
    require_exact(code)
    module, statement = module_argument(call), code.statement(call)
    container = None if module is None else dotted(module.value)
    if module is None or container is None:
        raise NoFixError(f"`{code.short(call)}` does not name the container")
    _check_plain(code, call, statement, container)
    block = fresh(code, call, "block")
    others = [code.slice(each) for each in call.args if each is not module]
    once = (ir.Call, ir.NamedExpr, ir.Yield)
    if any(isinstance(n, once) for a in call.args if a is not module for n in ir.walk(a)):
        raise NoFixError(f"the arguments of `{code.short(call)}` would be made for each module")
    head = f"for {block} in {container}{'.values()' if keyed else ''}:"
    inner = f"{code.indentation(statement)}{code.unit}"
    text = f"{head}{code.newline}{inner}{code.slice(call.func)}({', '.join([block, *others])})"
    edit = code.edit(statement.start, statement.end, text)
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"shard each module of `{container}`", safety, (edit,))


def _check_plain(code: Code, call: ir.Call, statement: ir.Stmt, container: str) -> None:
    alone = isinstance(statement, ir.Expression) and statement.value is call
    if isinstance(statement, ir.Assign) and statement.value is call:
        alone = [dotted(target) for target in statement.targets] == [container]
    if not alone or not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` uses what is sharded")
    module = module_argument(call)
    if module is not None and isinstance(module.value, ir.Name) and code.is_rebound(module.value):
        raise NoFixError(f"`{container}` is not always a container")
