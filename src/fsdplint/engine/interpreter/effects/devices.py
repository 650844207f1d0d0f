"""Devices: where modules are built on meta."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.engine import ir
from fsdplint.engine.interpreter.effects.unlisted import unlisted
from fsdplint.engine.interpreter.state import Effect, Frame, PathState, is_const_text
from fsdplint.engine.interpreter.values import Arguments, Context, Object, Symbol, Value
from fsdplint.knowledge.initialisation import META_CONTEXTS
from fsdplint.knowledge.launch import TORCH_DEVICE


def _device(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    if arguments.args and is_const_text(arguments.args[0], "meta"):
        return Context("meta", ())
    symbol = Symbol(TORCH_DEVICE)
    made = unlisted(state, symbol, arguments, node, frame)
    if isinstance(made, Object):
        made.cls, made.args = symbol, tuple(arguments.args)
        made.keywords = dict(arguments.keywords)
    return made


def _meta_context(*_: object) -> Value:
    return Context("meta", ())


EFFECTS: Mapping[str, Effect] = {
    TORCH_DEVICE: _device,
    **dict.fromkeys(META_CONTEXTS, _meta_context),
}
