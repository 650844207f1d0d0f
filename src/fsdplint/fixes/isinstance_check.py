"""A comparison of a module's very class made an ``isinstance``."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import bound_by


@builder
def ask_instance(
    code: Code, check: ir.Node, subject: ir.Expr, classes: ir.Expr, names: Sequence[str] | None
) -> Fix:
    """``type(m) is Block`` to ``isinstance(m, Block)``.

    Args:
        names: what the classes are called, where ``classes`` holds no more than that.
    """
    require_exact(code)
    if code.comments(check.start, check.end):
        raise NoFixError("a comment stands inside the comparison")
    text = code.slice(classes)
    if names is not None:
        bound = {name for node in ir.walk(code.module) for name in bound_by(node)}
        missing = [name for name in names if name not in bound]
        if missing:
            raise NoFixError(f"this file does not know the class `{missing[0]}`")
        text = ", ".join(names)
    elif isinstance(classes, ir.Collection):
        text = ", ".join(map(code.slice, classes.elements))
    several = len(names) > 1 if names is not None else isinstance(classes, ir.Collection)
    single = isinstance(classes, ir.Collection) and len(classes.elements) == 1
    text = f"({text})" if several and not single else text
    edit = code.edit(check.start, check.end, f"isinstance({code.slice(subject)}, {text})")
    return Fix("ask by `isinstance`, which a sharded module still answers", Safety.SAFE, (edit,))
