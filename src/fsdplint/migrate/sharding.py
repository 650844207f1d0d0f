"""Shard a model in place where its code wraps it or uses it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.knowledge.names import DISTRIBUTED, FULLY_SHARD

OWN = "the model's"


def sharding_lines(
    code: Code,
    imports: Imports,
    model: str,
    *,
    equal: bool = False,
    variable: str = "",
    device: str = "",
    hook: str = "",
    options: str = "",
) -> list[str]:
    """Return lines that shard ``model``, which begins with the weights and buffers of rank 0.

    Args:
        equal: all ranks have the same already.
        variable: a name for the loop over tensors that is free, else one is chosen.
        device: what becomes the current device of the rank, on which the model is sharded; `OWN`
            for that of the model, if it is on a GPU.
        hook: a function that is called before each forward.
        options: further arguments of `fully_shard`.
    """
    shard = imports.name(*FULLY_SHARD.rsplit(".", 1))
    lines = [f"{model}.register_forward_pre_hook({hook})"] if hook else []
    if not equal:
        dist = imports.module(DISTRIBUTED, "dist")
        tensor = variable or fresh(code, imports.use, "tensor")
        lines += [
            f"for {tensor} in (*{model}.parameters(), *{model}.buffers()):",
            f"{code.unit}{dist}.broadcast({tensor}.detach(), src=0)",
        ]
    if device:
        torch, of = imports.module("torch", "torch"), f"next({model}.parameters())"
        text = f"{of}.device" if device == OWN else device
        first = [f"if {of}.is_cuda:"] if device == OWN else []
        lines[:0] = [*first, f"{code.unit * len(first)}{torch}.cuda.set_device({text})"]
    return [*lines, f"{shard}({model}{', ' * bool(options)}{options})"]


def unwrap(
    code: Code,
    call: ir.Call,
    module: ir.Expr,
    imports: Imports,
    *,
    equal: bool,
    device: str = "",
    hook: str = "",
) -> list[Edit]:
    """Return edits that replace ``call``, a wrapper's, by ``module``, which is sharded instead.

    Comments between the arguments get lines of their own.

    Raises:
        NoFixError: the call is not always made once.
    """
    statement = _simple_statement(code, call)
    sharded = partial(sharding_lines, code, imports, equal=equal, device=device, hook=hook)
    outside = (call.start, module.start), (module.end, call.end)
    comments = [each for ends in outside for each in code.comments_in(*ends)]
    path, text = dotted(module), on_its_own(code.slice(module))
    target = _target(statement, call)
    if path is not None and path == target:
        lines = [*comments, *sharded(path)]
        return [code.edit(statement.start, statement.end, _joined(code, statement, lines))]
    replaced = code.edit(call.start, call.end, text)
    if path is None and target is not None:
        lines = [*comments, *sharded(target)]
        return [replaced, _inserted(code, statement, code.after(statement), lines)]
    first = []
    if path is None:
        path = fresh(code, call, "model")
        first = [f"{path} = {text}"]
        replaced = code.edit(call.start, call.end, path)
    lines = [*comments, *first, *sharded(path)]
    return [_inserted(code, statement, code.extent(statement)[0], lines), replaced]


def _simple_statement(code: Code, call: ir.Call) -> ir.Stmt:
    statement = code.statement(call)
    if isinstance(statement, COMPOUND):
        raise NoFixError(f"`{code.short(call)}` is in the header of a compound statement")
    sometimes = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)
    around = code.ancestors(call)
    if any(isinstance(each, sometimes) for each in around if each.start >= statement.start):
        raise NoFixError(f"`{code.short(statement)}` may not make the call, or repeat it")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    return statement


def _target(statement: ir.Stmt, call: ir.Call) -> str | None:
    """Return the only name that the statement assigns the result of ``call`` to."""
    if not isinstance(statement, ir.Assign) or statement.value is not call:
        return None
    (first, *others) = statement.targets
    return None if others else dotted(first)


def on_its_own(text: str) -> str:
    """Return the text of an expression, in parentheses if it needs those of the call around it."""
    try:
        ast.parse(text)
    except SyntaxError:
        return f"({text})"
    return text


def _joined(code: Code, statement: ir.Stmt, lines: Sequence[str]) -> str:
    return f"{code.newline}{code.indentation(statement)}".join(lines)


def _inserted(code: Code, statement: ir.Stmt, at: int, lines: Sequence[str]) -> Edit:
    indent = code.indentation(statement)
    return code.insert_lines(at, "".join(indent + line + code.newline for line in lines))
