"""Gradients reduced in float32."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports

_KEYWORD = "reduce_dtype"


@builder
def reduce_in_full(code: Code, made: ir.Node) -> Fix:
    """``reduce_dtype=torch.bfloat16`` to ``reduce_dtype=torch.float32``."""
    require_exact(code)
    if not isinstance(made, ir.Call) or any(argument.star for argument in made.args):
        raise NoFixError("the policy does not write its fields out")
    imports = Imports(code, made)
    torch = imports.bound("torch")
    dtype = imports.name("torch", "float32") if torch is None else f"{torch}.float32"
    plain = [argument for argument in made.args if argument.keyword is None]
    given = [argument for argument in made.args if argument.keyword == _KEYWORD] or plain[1:2]
    if not given:
        raise NoFixError("the dtype does not stand where the policy is made")
    value = given[0].value
    edits = (code.edit(value.start, value.end, dtype), *imports.edits())
    title = "reduce the gradients in float32"
    return Fix(title, Safety.UNSAFE, edits)
