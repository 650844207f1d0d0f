"""A change in place made an assignment of something new."""

from __future__ import annotations

import re

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder

_PLAIN = (ir.Name, ir.Constant, ir.Call, ir.Attribute, ir.Subscript)
# Methods that have no form that leaves the tensor as it is.
_ONLY_IN_PLACE = frozenset({"zero_", "fill_", "normal_", "uniform_", "copy_", "set_", "resize_"})


@builder
def out_of_place(code: Code, change: ir.Node) -> Fix:
    """``h += x`` to ``h = h + x``, and ``h.mul_(2)`` to ``h = h.mul(2)``."""
    require_exact(code)
    if isinstance(change, ir.AugAssign):
        edit = code.edit(change.start, change.end, _augmented(code, change))
    elif isinstance(change, ir.Call) and isinstance(change.func, ir.Attribute):
        method, name = change.func.attr, code.slice(change.func.value)
        if method in _ONLY_IN_PLACE:
            raise NoFixError(f"`{method}` has no form that gives a new tensor")
        arguments = code.text[change.func.end : change.end]
        edit = code.edit(change.start, change.end, f"{name} = {name}.{method[:-1]}{arguments}")
    else:
        raise NoFixError(f"`{code.short(change)}` writes to a part of the view")
    return Fix("give a new tensor instead of changing the view", Safety.SAFE, (edit,))


def _augmented(code: Code, change: ir.AugAssign) -> str:
    operator = code.text[change.target.end : change.value.start]
    if not re.fullmatch(r"\s*\S+=\s*", operator):
        raise NoFixError(f"`{code.short(change)}` is not written out plainly")
    name, value = code.slice(change.target), code.slice(change.value)
    value = value if isinstance(change.value, _PLAIN) else f"({value})"
    return f"{name} = {name} {operator.strip()[:-1]} {value}"
