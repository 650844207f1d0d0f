"""A comparison of a module's very class made an ``isinstance``."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import bound_by


@builder
def ask_instance(
    code: Code,
    check: ir.Node,
    subject: ir.Expr,
    classes: ir.Expr,
    names: Sequence[str] | None,
    final: bool,
) -> Fix:
    """``type(m) is Block`` to ``isinstance(m, Block)``.

    Args:
        names: what the classes are called, where ``classes`` holds no more than that.
        final: nothing derives from the classes, which would be asked for as well.
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
    asked = Imports(code, check).builtin("isinstance")
    edit = code.edit(check.start, check.end, f"{asked}({code.slice(subject)}, {text})")
    title = "ask by `isinstance`, which a sharded module still answers"
    # By its name, the class may be another one than that of this file.
    sure = final and names is None and _is_given(code, check)
    return Fix(title, Safety.SAFE if sure else Safety.UNSAFE, (edit,))


def _is_given(code: Code, check: ir.Node) -> bool:
    """Whether a check is a lambda that is an argument, which no other code can ask."""
    function = next(a for a in code.ancestors(check) if isinstance(a, (ir.Function, ir.Module)))
    if isinstance(function, ir.Module):
        return False
    holder = code.parent(function)
    return isinstance(holder, ir.Lambda) and isinstance(code.parent(holder), ir.Argument)
