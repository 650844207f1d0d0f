"""A checkpoint by autograd's hooks rather than by a second, inner backward."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import builder


@builder
def not_reentrant(code: Code, argument: ir.Argument) -> Fix:
    """``use_reentrant=True`` to ``use_reentrant=False``."""
    require_exact(code)
    edit = code.edit(argument.value.start, argument.value.end, "False")
    return Fix("set `use_reentrant=False`", Safety.UNSAFE, (edit,))
