"""How a `Fabric` sets up models and optimizers, and which methods it calls as forwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit, Safety
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.move import move_below
from fsdplint.fixes.names import binders, dotted
from fsdplint.knowledge.lightning_settings import (
    MARKS,
    PARALLEL_STRATEGY,
    SETS_UP,
    SETS_UP_MODULE,
    SETS_UP_OPTIMIZERS,
)
from fsdplint.migrate.step import Change, Context, Found, attempt


def setups(context: Context) -> Iterator[Edit]:
    """Yield the edits that set up each model before its optimizers, which take its parameters.

    Raises:
        NoFixError: a model is set up with optimizers in an expression.
    """
    for code in context.codes(f".{SETS_UP}("):
        for call in code.walk(SETS_UP):
            if not isinstance(call, ir.Call) or not isinstance(call.func, ir.Attribute):
                continue
            given = [each for each in call.args if each.keyword is None]
            if call.func.attr == SETS_UP and len(given) > 1:
                yield _apart(code, call, call.func, given)


def _apart(code: Code, call: ir.Call, method: ir.Attribute, given: list[ir.Argument]) -> Edit:
    statement = code.statement(call)
    target = statement.targets[0] if isinstance(statement, ir.Assign) else None
    names = target.elements if isinstance(target, ir.Collection) else ()
    others = [each for each in call.args if each.keyword is not None]
    plain = isinstance(statement, ir.Assign) and statement.value is call
    if not plain or len(names) != len(given) or any(e.keyword == "scheduler" for e in others):
        raise NoFixError(
            f"`{code.short(call)}` sets up a model with its optimizers; call `{SETS_UP_MODULE}`, "
            f"build the optimizers, and call `{SETS_UP_OPTIMIZERS}` by hand"
        )
    owner = code.slice(method.value)
    module = ", ".join(map(code.slice, (given[0], *others)))
    optimizers = ", ".join(map(code.slice, given[1:]))
    results = ", ".join(map(code.slice, names[1:]))
    lines = (
        f"{code.slice(names[0])} = {owner}.{SETS_UP_MODULE}({module})",
        f"{results} = {owner}.{SETS_UP_OPTIMIZERS}({optimizers})",
    )
    text = f"{code.newline}{code.indentation(statement)}".join(lines)
    return code.edit(statement.start, statement.end, text)


def early_optimizers(context: Context) -> Iterator[Found]:
    """Yield a change for each optimizer that is built before its model is sharded."""
    if not any(True for _ in context.codes(PARALLEL_STRATEGY)):
        return
    for code in context.codes(f".{SETS_UP_MODULE}("):
        for call in code.walk(SETS_UP_MODULE):
            if isinstance(call, ir.Call) and ir.last_name(call.func) == SETS_UP_MODULE:
                for made in _early(code, call):
                    yield from attempt(code, made, partial(_moved, code, made, call))


def _early(code: Code, setup: ir.Call) -> Iterator[ir.Expr]:
    """Yield what makes an optimizer of a module before the module is set up."""
    scope = code.function(setup) or code.module
    model = dotted(setup.args[0].value) if setup.args else None
    for call in code.nodes_of(scope):
        if not isinstance(call, ir.Call) or ir.last_name(call.func) != SETS_UP_OPTIMIZERS:
            continue
        names = (dotted(each.value) or "" for each in call.args)
        for made in (each for name in names for each in binders(code, scope).get(name, ())):
            is_early = made.start < setup.start < call.start
            if not isinstance(made, ir.Assign) or not is_early:
                continue
            if any(dotted(node) == model for node in ir.walk(made.value)):
                yield made.value


def _moved(code: Code, made: ir.Expr, setup: ir.Call) -> Change:
    fix = move_below(code, made, setup, "build the optimizer after sharding", Safety.UNSAFE)
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return Change(code.span(made), fix.title, fix.edits)


def marked(context: Context) -> list[str]:
    """Return the names of methods that programs mark as forwards of a model."""
    found = {
        str(name.value) if isinstance(name, ir.Constant) else ir.last_name(name)
        for code in context.codes(MARKS)
        for call in code.walk(MARKS)
        if isinstance(call, ir.Call) and ir.last_name(call.func) == MARKS and call.args
        for name in [call.args[0].value]
    }
    return sorted(filter(None, found))
