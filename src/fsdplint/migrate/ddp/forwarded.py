"""Arguments that a function passes on, such as ``*args``, and that its callers leave out."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Context


def written_out(context: Context, code: Code, call: ir.Call) -> list[ir.Argument]:
    """Return the arguments of ``call`` without those that are always empty."""
    return [each for each in call.args if not (each.star and _is_empty(context, code, each))]


def _is_empty(context: Context, code: Code, argument: ir.Argument) -> bool:
    function, value = code.function(argument), argument.value
    if function is None or not isinstance(value, ir.Name):
        return False
    kinds = {each.name: each.kind for each in function.parameters}
    calls = list(_calls(context, function.name))
    gathers = kinds.get(value.id) == argument.star and not code.assigned(value)
    bound = isinstance(code.scope(function), ir.ClassDef)
    return gathers and bool(calls) and all(_fits(function, each, bound) for each in calls)


def _calls(context: Context, name: str) -> Iterator[ir.Call]:
    for code in context.codes(name):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and ir.last_name(node.func) == name:
                yield node


def _fits(function: ir.Function, call: ir.Call, bound: bool) -> bool:
    """True if a call gives values only to the parameters that have names.

    Args:
        bound: the function is a method, whose first parameter is its object.
    """
    named = [each.name for each in function.parameters if not each.kind.startswith("*")]
    plain = [each for each in call.args if each.keyword is None]
    return (
        not any(each.star for each in call.args)
        and len(plain) + bound <= len(named)
        and all(each.keyword in named for each in call.args if each.keyword is not None)
    )
