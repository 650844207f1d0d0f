"""`model = FSDP(model) if sharded else DDP(model)`: statements that may wrap a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.conditions import negated
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.calls import FSDP1_WORDS
from fsdplint.migrate.sharding import on_its_own
from fsdplint.migrate.step import Change, Context, Found, attempt


def choices(context: Context) -> Iterator[Found]:
    """Yield a change for each `(DDP if replicated else FSDP)(model)`, which becomes two calls."""
    for code in context.codes(*FSDP1_WORDS):
        for node in code.walk(*FSDP1_WORDS):
            chosen = node.func if isinstance(node, ir.Call) else None
            if isinstance(chosen, ir.Conditional) and is_class_choice(context, code, chosen):
                yield from attempt(code, node, partial(split, code, chosen))


def is_class_choice(context: Context, code: Code, value: ir.Expr) -> bool:
    """True if a conditional expression is FSDP1's class in one case."""
    arms = (value.body, value.orelse) if isinstance(value, ir.Conditional) else ()
    return any(context.name(code, arm) == FSDP1 for arm in arms)


def split(code: Code, chosen: ir.Conditional) -> Change:
    """Write the statement around a conditional expression once for each case.

    Raises:
        NoFixError: the expression may not be the first that the statement evaluates.
    """
    around = code.parent(chosen)
    called = isinstance(around, ir.Call) and around.func is chosen
    whole = around if called and isinstance(around, ir.Call) else chosen
    statement = code.parent(whole)
    simple = isinstance(statement, (ir.Assign, ir.Return, ir.Expression))
    if not simple or not isinstance(statement, (ir.Assign, ir.Return, ir.Expression)):
        raise NoFixError("the call is in an expression that may skip or repeat it; move it out")
    if not code.alone(statement) or code.comments(statement.start, statement.end):
        raise NoFixError("its statement shares a line or has comments; use an `if` statement")
    head = {ir.Assign: " = ", ir.Return: "return ", ir.Expression: ""}[type(statement)]
    if isinstance(statement, ir.Assign):
        head = " = ".join([*map(code.slice, statement.targets), ""])
    rest = code.text[code.text.index(")", chosen.end) + 1 : whole.end] if called else ""
    yes, no = (f"{head}{on_its_own(code.slice(arm))}{rest}" for arm in (chosen.body, chosen.orelse))
    test = code.slice(chosen.test)
    if _is_idle(code, statement, chosen.body) and not called:
        test, yes, no = negated(code, chosen.test), no, yes
    lines = [f"if {on_its_own(test)}:", f"{code.unit}{yes}"]
    idle = _is_idle(code, statement, chosen.body) or _is_idle(code, statement, chosen.orelse)
    if called or not idle:
        lines += ["else:", f"{code.unit}{no}"]
    text = f"{code.newline}{code.indentation(statement)}".join(lines)
    edit = code.edit(statement.start, statement.end, text)
    return Change(code.span(chosen), f"use an `if` statement for `{code.short(chosen)}`", (edit,))


def _is_idle(code: Code, statement: ir.Node, arm: ir.Expr) -> bool:
    """True if a statement gives a variable the value that it has."""
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    return [code.slice(arm)] == [code.slice(each) for each in targets]
