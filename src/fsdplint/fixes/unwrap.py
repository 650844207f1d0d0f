"""A wrapper taken off a model that another way of data parallelism has already."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import orphans
from fsdplint.fixes.names import dotted


@builder
def unwrap(code: Code, call: ir.Node) -> Fix:
    """``model = DDP(model)`` goes, and ``DDP(model)`` elsewhere becomes ``model``."""
    require_exact(code)
    given = call.args[0] if isinstance(call, ir.Call) and call.args else None
    if not isinstance(call, ir.Call) or given is None or given.star:
        raise NoFixError(f"`{code.short(call)}` does not name the model first")
    if code.comments(call.start, call.end):
        raise NoFixError("a comment stands inside the call")
    model, statement = code.slice(given.value), code.statement(call)
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    same = [code.slice(target) for target in targets] == [model]
    if same and code.parent(call) is statement and code.alone(statement):
        edit = code.delete_lines(*code.extent(statement))
    else:
        edit = code.edit(call.start, call.end, model)
    callee = dotted(call.func)
    dropped = orphans(code, callee.split(".")[0], [edit]) if callee else []
    title = f"leave `{model}` without `{code.slice(call.func)}`"
    return Fix(title, Safety.UNSAFE, (edit, *dropped))
