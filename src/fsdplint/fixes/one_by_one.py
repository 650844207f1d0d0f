"""An optimizer that takes its parameters one by one."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder


@builder
def one_by_one(code: Code, build: ir.Node, option: str, safety: Safety) -> Fix:
    """``foreach=True`` or ``fused=True`` to ``foreach=False``."""
    require_exact(code)
    for argument in build.args if isinstance(build, ir.Call) else ():
        if argument.keyword == option and isinstance(argument.value, ir.Constant):
            edit = code.edit(argument.start, argument.end, "foreach=False")
            return Fix("set `foreach=False`", safety, (edit,))
    raise NoFixError(f"`{option}` is not written in the optimizer's construction")
