"""Tensors that are made like a parameter, which would be made like its shards."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.migrate.step import Change, Context, Found, Kept

_NEW = "new_"
_FACTORIES = ("zeros", "ones", "empty", "full")
_LIKE = ("dtype", "device")


def factories(context: Context) -> Iterator[Found]:
    """Yield a change for each `new_zeros` of a model's parameter, and of its like.

    Of a sharded parameter they return a DTensor, which does not mix with a batch.
    """
    for code in context.codes(*(f".{_NEW}{name}(" for name in _FACTORIES)):
        for node in ir.walk(code.module):
            if not isinstance(node, ir.Call) or not isinstance(node.func, ir.Attribute):
                continue
            name, like = node.func.attr.removeprefix(_NEW), node.func.value
            if name in _FACTORIES and node.func.attr != name and _is_parameter(code, like):
                span = code.edit(node.start, node.end, "").span
                imports = Imports(code, node)
                try:
                    edits = tuple(_plain(code, node, name, imports))
                except NoFixError as reason:
                    yield Kept(span, f"`{code.short(node)}`", str(reason))
                else:
                    what = f"make a plain tensor like `{code.slice(like)}`, which is sharded"
                    yield Change(span, what, edits, (imports,))


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


def _plain(code: Code, call: ir.Call, name: str, imports: Imports) -> Iterator[Edit]:
    """Yield the edits to a function of `torch`, with the type and the device that are not given."""
    if any(each.star == "**" for each in call.args):
        raise NoFixError("it unpacks its arguments; call a function of `torch` instead by hand")
    assert isinstance(call.func, ir.Attribute)
    like, given = code.slice(call.func.value), {each.keyword for each in call.args}
    torch = imports.module("torch", "torch")
    yield code.edit(call.func.start, call.func.end, f"{torch}.{name}")
    added = "".join(f", {each}={like}.{each}" for each in _LIKE if each not in given)
    end = call.args[-1].end
    yield code.edit(end, end, added)
