"""Tensors that are made like a parameter, which would be made like its shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.migrate.step import Change, Context, Found, attempt

_NEW = "new_"
_FACTORIES = ("zeros", "ones", "empty", "full")
_LIKE = ("dtype", "device")


def factories(context: Context) -> Iterator[Found]:
    """Yield a change for each `new_zeros` of a model's parameter, and of its like.

    Of a sharded parameter they return a DTensor, which does not mix with a batch.
    """
    for code in context.codes(*(f".{_NEW}{name}(" for name in _FACTORIES)):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
                prefix, name = node.func.attr[: len(_NEW)], node.func.attr[len(_NEW) :]
                new = prefix == _NEW and name in _FACTORIES
                if new and _is_parameter(code, node.func.value):
                    yield from attempt(code, node, partial(_plain, code, node, name))


def _is_parameter(code: Code, value: ir.Expr) -> bool:
    """True for a variable with the first parameter of a module."""
    values = code.assigned(value) if isinstance(value, ir.Name) else []
    return bool(values) and all(map(_is_first_parameter, values))


def _is_first_parameter(value: ir.Expr) -> bool:
    """True for ``next(module.parameters())``."""
    if not isinstance(value, ir.Call) or ir.last_name(value.func) != "next" or not value.args:
        return False
    every = value.args[0].value
    return isinstance(every, ir.Call) and ir.last_name(every.func) == "parameters"


def _plain(code: Code, call: ir.Call, name: str) -> Change:
    """Call a function of `torch`, with the type and the device if they are not given."""
    if not call.args or any(each.star == "**" for each in call.args):
        raise NoFixError("it unpacks its arguments; call a function of `torch` instead by hand")
    assert isinstance(call.func, ir.Attribute)
    like, given = code.slice(call.func.value), {each.keyword for each in call.args}
    imports, end = Imports(code, call), call.args[-1].end
    added = "".join(f", {each}={like}.{each}" for each in _LIKE if each not in given)
    function = f"{imports.module('torch', 'torch')}.{name}"
    edits = code.edit(call.func.start, call.func.end, function), code.edit(end, end, added)
    what = f"make a plain tensor like `{like}`, which is sharded"
    return Change(code.span(call), what, edits, (imports,))
