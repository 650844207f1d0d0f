"""Rows of Hugging Face's `datasets`, known by the call that makes them and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls
from fsdplint.engine.interpreter.state import Effect, Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    Const,
    FunctionValue,
    Method,
    Object,
    Partial,
    Symbol,
    Value,
    class_names,
    followed,
    key_of,
)
from fsdplint.knowledge.data import DRAWS_ROWS, LOADS_ROWS, MAPS_ROWS, ROWS


def made_of_rows(
    name: str,
    state: PathState,
    receiver: Object,
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> Value | None:
    """Return the rows that a method makes of others; their first argument is the others."""
    if ROWS not in class_names(receiver.cls) or not _is_repeatable(
        name, state, arguments, node, frame
    ):
        return None
    made = calls.result_of(state, ("method", key_of(receiver), name), receiver, arguments)
    return _rows(state, made, [receiver, *arguments.args], arguments, node, frame)


def _is_repeatable(
    name: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> bool:
    """True unless what a method does to rows, or the seed that it draws by, is not known."""
    if name in MAPS_ROWS:
        function = followed(arguments.get(0, "function"))
        return isinstance(function, (FunctionValue, Method, Partial))
    if name in DRAWS_ROWS:
        places = [DRAWS_ROWS[name], "seed"]
        seeds = [a.value for i, a in enumerate(node.args) if (a.keyword or i) in places]
        return any(_is_number(state, seed, frame) for seed in seeds)
    return True


def _is_number(state: PathState, node: ir.Expr, frame: Frame) -> bool:
    """True for a number that is known, and for what is computed from such numbers."""
    if isinstance(node, ir.BinOp):
        return all(_is_number(state, each, frame) for each in (node.left, node.right))
    value = state.evaluate(node, frame) if isinstance(node, (ir.Constant, ir.Name)) else None
    return isinstance(value, Const) and isinstance(value.value, int)


def _loaded(
    name: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    made = calls.result_of(state, ("call", name), Symbol(name), arguments)
    return _rows(state, made, arguments.args, arguments, node, frame)


def _rows(
    state: PathState,
    made: Object,
    given: list[Value],
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> Object:
    made.cls, made.site = Symbol(ROWS), state.site(node, frame)
    made.args, made.keywords = tuple(given), dict(arguments.keywords)
    made.open = arguments.open
    return made


EFFECTS: Mapping[str, Effect] = {name: partial(_loaded, name) for name in LOADS_ROWS}
