"""A change in place made an assignment of something new."""

from __future__ import annotations

import re

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import bound_by
from fsdplint.knowledge.tensors import CHANGES_IN_PLACE, DESCRIPTIONS, MAKES_NEW

_PLAIN = (ir.Name, ir.Constant, ir.Call, ir.Attribute, ir.Subscript)


@builder
def out_of_place(code: Code, change: ir.Node, call: ir.Node, fresh: bool) -> Fix:
    """``h += x`` to ``h = h + x``, and ``h.mul_(2)`` to ``h = h.mul(2)``.

    Args:
        call: what gave the tensor that is changed.
        fresh: nothing but the statement of ``call`` gets hold of its memory.
    """
    require_exact(code)
    if isinstance(change, ir.AugAssign):
        edit = code.edit(change.start, change.end, _augmented(code, change))
        operands: list[ir.Expr] = [change.value]
        target = change.target
    elif isinstance(change, ir.Call) and isinstance(change.func, ir.Attribute):
        method, name = change.func.attr, code.slice(change.func.value)
        if method[:-1] not in MAKES_NEW:
            raise NoFixError(f"`{method}` has no form that gives the same in a new tensor")
        arguments = code.text[change.func.end : change.end]
        edit = code.edit(change.start, change.end, f"{name} = {name}.{method[:-1]}{arguments}")
        operands = [argument.value for argument in change.args]
        target = change.func.value
    else:
        raise NoFixError(f"`{code.short(change)}` writes to a part of the view")
    title = "give a new tensor instead of changing the view"
    if not all(_is_number(code, each) for each in operands):
        title += ", which may be of another dtype"
    elif fresh and _is_only_name(code, target, call, change):
        return Fix(title, Safety.SAFE, (edit,))
    else:
        title += ", which no other name for it shows"
    return Fix(title, Safety.UNSAFE, (edit,))


def _is_number(code: Code, operand: ir.Expr) -> bool:
    meant = code.meaning(operand)
    return isinstance(meant, ir.Constant) and type(meant.value) in (int, float)


def _is_only_name(code: Code, target: ir.Expr, call: ir.Node, change: ir.Node) -> bool:
    """Whether nothing but ``target`` stands for what ``call`` gave when it is changed."""
    given = code.parent(call)
    if not isinstance(target, ir.Name) or not isinstance(given, ir.Assign):
        return False
    alone = len(given.targets) == 1 and given.value is call
    if not alone or [*bound_by(given)] != [target.id] or not code.precedes(given, change):
        return False
    between = [n for n in ir.walk(code.module) if given.end <= n.start < change.start]
    if any(target.id in bound_by(node) for node in between):
        return False
    names = (node for node in between if isinstance(node, ir.Name) and node.id == target.id)
    return all(_is_described(code, name) for name in names) and not code.looks_up_variables


def _is_described(code: Code, name: ir.Name) -> bool:
    parent = code.parent(name)
    return isinstance(parent, ir.Attribute) and parent.attr in DESCRIPTIONS


def _augmented(code: Code, change: ir.AugAssign) -> str:
    operator = code.text[change.target.end : change.value.start]
    if not re.fullmatch(r"\s*\S+=\s*", operator):
        raise NoFixError(f"`{code.short(change)}` is not written out plainly")
    name, value = code.slice(change.target), code.slice(change.value)
    if operator.strip()[:-1] not in CHANGES_IN_PLACE:
        raise NoFixError(f"`{code.short(change)}` is no arithmetic on numbers")
    value = value if isinstance(change.value, _PLAIN) else f"({value})"
    return f"{name} = {name} {operator.strip()[:-1]} {value}"
