"""``.full_tensor()`` before a number is read, which combines the parts of all ranks."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder

_WHOLE = ".full_tensor()"
# Expressions that an attribute can follow without parentheses.
_PRIMARY = (ir.Name, ir.Attribute, ir.Call, ir.Subscript)


@builder
def combine(code: Code, read: ir.Node) -> Fix:
    """Combines the number before it is read.

    Args:
        read: the call of ``item``, ``float`` or the like, or the expression that is read itself.
    """
    require_exact(code)
    edits = tuple(_edits(code, read))
    return Fix("combine the parts of all ranks by `full_tensor()` first", Safety.UNSAFE, edits)


def _edits(code: Code, read: ir.Node) -> Iterator[Edit]:
    method = read.func if isinstance(read, ir.Call) else None
    if isinstance(method, ir.Attribute) and method.attr == "item":
        dot = code.text.rindex(".", method.value.end, method.end)
        yield code.edit(dot, dot, _WHOLE)
        return
    if isinstance(read, ir.Call) and _reads_argument(read):
        read = read.args[0].value
    elif isinstance(read, ir.Call) and _is_asked(read):
        raise NoFixError(f"`{code.short(read)}` reads several numbers at once")
    if isinstance(read, _PRIMARY):
        yield code.edit(read.end, read.end, _WHOLE)
    else:
        yield code.edit(read.start, read.start, "(")
        yield code.edit(read.end, read.end, f"){_WHOLE}")


def _reads_argument(call: ir.Call) -> bool:
    in_math = isinstance(call.func, ir.Attribute) and getattr(call.func.value, "id", "") == "math"
    plain = isinstance(call.func, ir.Name) and call.func.id in ("float", "int", "bool")
    return (in_math or plain) and len(call.args) >= 1


def _is_asked(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Name) and call.func.id in ("any", "all")
