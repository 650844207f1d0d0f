"""The calls of FSDP1's class in a file, and what its names stand for."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import binders
from fsdplint.knowledge.lightning_settings import FSDP, NAMES, is_fsdp, kind_of
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.step import Context

# A file that calls the class has one of them.
FSDP1_WORDS = ("FullyShardedDataParallel", "FSDP")


def fsdp1_calls(context: Context, code: Code) -> Iterator[ir.Call]:
    """Yield the calls of FSDP1's class, in any order."""
    for node in code.walk(*FSDP1_WORDS):
        if isinstance(node, ir.Call) and context.name(code, node.func) == FSDP1:
            yield node


def has_fsdp1(context: Context) -> bool:
    """True if calls of FSDP1's class are left."""
    return any(True for code in context.codes(*FSDP1_WORDS) for _ in fsdp1_calls(context, code))


def strategy_calls(context: Context, code: Code) -> Iterator[ir.Call]:
    """Yield the calls that make a strategy of Lightning for FSDP1."""
    for node in code.walk(NAMES[FSDP]):
        if isinstance(node, ir.Call) and is_fsdp(kind_of(context.name(code, node.func))):
            yield node


def definition(code: Code, value: ir.Expr) -> ir.Expr:
    """Return what a name stands for: the only value that its function, or else the file, gives it.

    Any other expression is returned as it is.
    """
    found = code.meaning(value)
    if not isinstance(found, ir.Name) or code.function(found) is None:
        return found
    if found.id in code.shared or _is_bound(code, found):
        return found
    bound = binders(code, code.module).get(found.id, [])
    only = bound[0] if len(bound) == 1 else None
    plain = isinstance(only, ir.Assign) and len(only.targets) == 1
    named = plain and isinstance(only, ir.Assign) and isinstance(only.targets[0], ir.Name)
    return only.value if named and isinstance(only, ir.Assign) else found


def possible_values(code: Code, value: ir.Expr) -> Iterator[ir.Expr]:
    """Yield an expression, or what the functions around a name and the file give it."""
    if not isinstance(value, ir.Name):
        yield value
        return
    for scope in code.ancestors(value):
        if isinstance(scope, ir.Function):
            defaults = (each.default for each in scope.parameters if each.name == value.id)
            yield from (each for each in defaults if each is not None)
        if isinstance(scope, (ir.Function, ir.Module)):
            bound = binders(code, scope).get(value.id, ())
            yield from (each.value for each in bound if isinstance(each, ir.Assign))


def may_be_none(code: Code, value: ir.Expr) -> bool:
    """Return whether the text gives an expression the value None somewhere."""
    return any(
        isinstance(node, ir.Constant) and node.value is None
        for each in possible_values(code, value)
        for node in ((each.body, each.orelse) if isinstance(each, ir.Conditional) else (each,))
    )


def _is_bound(code: Code, name: ir.Name) -> bool:
    """Return whether a function around a name binds it."""
    functions = (each for each in code.ancestors(name) if isinstance(each, ir.Function))
    return any(
        name.id in binders(code, each)
        or any(parameter.name == name.id for parameter in each.parameters)
        for each in functions
    )


def are_alternatives(code: Code, one: ir.Node, other: ir.Node) -> bool:
    """Return whether two nodes are in different arms of an ``if`` statement."""
    around, inner = {other, *code.ancestors(other)}, one
    for above in code.ancestors(one):
        if above in around:
            if not isinstance(above, ir.If):
                return False
            for mine, others in ((above.body, above.orelse), (above.orelse, above.body)):
                if inner in mine:
                    return any(each in around for each in others)
            return False
        inner = above
    return False
