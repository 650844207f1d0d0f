"""Statements that change files, and what of them needs all ranks."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.collectives import MAY_NEED_ALL_RANKS
from fsdplint.knowledge.files import (
    CHANGES_FILES,
    CHANGES_FILES_BY_METHOD,
    SAVE,
    SAVES_BY_METHOD,
)
from fsdplint.knowledge.tensors import COMPUTING_METHODS
from fsdplint.migrate.states import sharded_names
from fsdplint.migrate.step import Context

# Further methods that compute on one rank alone.
_ALONE = frozenset(
    {
        *("astype", "copy", "data", "detach", "format", "get", "items", "join", "keys", "strftime"),
        *("lower", "replace", "split", "strip", "upper", "values", "with_suffix"),
    }
)


def changes_files(context: Context, code: Code, statement: ir.Stmt) -> bool:
    """True if a statement does nothing but change files, under tests or in loops or not."""
    if isinstance(statement, ir.If):
        arms: Sequence[ir.Stmt] = (*statement.body, *statement.orelse)
        quiet = not any(isinstance(node, ir.Call) for node in ir.walk(statement.test))
        return quiet and all(changes_files(context, code, each) for each in arms)
    call = writing_call(context, code, statement)
    return call is not None and not list(shared_work(context, code, call))


def writing_call(context: Context, code: Code, statement: ir.Stmt) -> ir.Call | None:
    """Return the call that a statement changes files by, if that is all it does."""
    call = statement.value if isinstance(statement, ir.Expression) else None
    if not isinstance(call, ir.Call) or not code.alone(statement):
        return None
    name, method = context.name(code, call.func), ir.last_name(call.func)
    if name in CHANGES_FILES:
        return call
    if name or not isinstance(call.func, ir.Attribute):
        return None
    known = method in CHANGES_FILES_BY_METHOD
    made = method == SAVE and _is_made_by(context, code, call.func.value)
    return call if known or made else None


def _is_made_by(context: Context, code: Code, value: ir.Expr) -> bool:
    """True if a library makes an object whose `save` writes a file."""
    values = code.assigned(value) if isinstance(value, ir.Name) else [value]
    calls = (n for each in values for n in ir.walk(each) if isinstance(n, ir.Call))
    return any(context.name(code, call.func).startswith(SAVES_BY_METHOD) for call in calls)


def shared_work(context: Context, code: Code, call: ir.Call) -> Iterator[ir.Expr]:
    """Yield the parts of a call that may need all ranks, such as a forward of a sharded model."""
    models = {name for names in sharded_names(context.program).values() for name in names}
    receiver = [call.func.value] if isinstance(call.func, ir.Attribute) else []
    for part in (*receiver, *(each.value for each in call.args)):
        nodes = list(ir.walk(part))
        calls = (node for node in nodes if isinstance(node, ir.Call))
        names = (n for n in nodes if isinstance(n, (ir.Name, ir.Attribute)))
        if any(code.slice(n) in models for n in names) or not all(
            is_alone(context, code, each) for each in calls
        ):
            yield part


def is_alone(context: Context, code: Code, call: ir.Call) -> bool:
    """True for a call that surely computes on one rank."""
    name, canonical = ir.last_name(call.func), context.name(code, call.func)
    if canonical:
        return not canonical.startswith(MAY_NEED_ALL_RANKS)
    if isinstance(call.func, ir.Attribute):
        return name in COMPUTING_METHODS | _ALONE
    return name in vars(builtins)
