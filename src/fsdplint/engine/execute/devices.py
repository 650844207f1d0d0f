"""Devices: where modules are built on meta."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.execute import libraries
from fsdplint.engine.execute.state import Frame, PathState, is_const_text
from fsdplint.engine.values import Arguments, Context, Object, Symbol, Value


def device(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    if arguments.args and is_const_text(arguments.args[0], "meta"):
        return Context("meta", ())
    symbol = Symbol("torch.device")
    made = libraries.unlisted(state, symbol, arguments, node, frame)
    if isinstance(made, Object):
        made.cls, made.args = symbol, tuple(arguments.args)
        made.keywords = dict(arguments.keywords)
    return made


def meta_context(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    return Context("meta", ())
