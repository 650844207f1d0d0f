"""A root resharded before its parameters are taken."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import dotted


@builder
def reshard_before(code: Code, source: ir.Call, build: ir.Node | None) -> Fix:
    """Inserts ``model.reshard()`` before the optimizer is built from ``model.parameters()``.

    Args:
        source: the call that takes the parameters.
        build: the optimizer's construction, if it stands in the same file.
    """
    require_exact(code)
    model = source.func.value if isinstance(source.func, ir.Attribute) else source.func
    if dotted(model) is None:
        raise NoFixError(f"`{code.short(source)}` does not name the model")
    if build is None or code.function(build) is not code.function(source):
        raise NoFixError(f"`{code.short(source)}` is in another function than the optimizer")
    first = min(code.statement(source), code.statement(build), key=lambda node: node.start)
    return _insert(code, code.slice(model), first, "the optimizer is built")


@builder
def reshard_before_use(code: Code, model: str, use: ir.Node) -> Fix:
    """Inserts ``model.reshard()`` before the statement that ``use`` is in."""
    require_exact(code)
    if not model:
        raise NoFixError("the model has no name where this stands")
    return _insert(code, model, code.statement(use), "this")


def _insert(code: Code, model: str, statement: ir.Stmt, what: str) -> Fix:
    start, _ = code.extent(statement)
    call = f"{model}.reshard()"
    line = f"{code.indentation(statement)}{call}{code.newline}"
    title = f"call `{call}` before {what}"
    return Fix(title, Safety.UNSAFE, (code.insert_lines(start, line),))
