"""Library functions that call what they are given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.state import Effect, Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    FunctionValue,
    Method,
    Partial,
    Sequence,
    Taint,
    Value,
    followed,
)
from fsdplint.knowledge.calls import CALLS_FIRST_ARGUMENT
from fsdplint.knowledge.launch import RUNS_FUNCTION, SPAWNS
from fsdplint.knowledge.ranks import Role


def _spawn(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """``mp.spawn(fn, args=(…))`` calls ``fn(rank, *args)`` in every process."""
    function = arguments.get(0, "fn")
    args = followed(arguments.get(1, "args") or Sequence([]))
    given = list(args.items) if isinstance(args, Sequence) else []
    if function is not None:
        rank = state.unknown(Taint.RANK)
        rank.role = Role.NUMBER
        outer, state.group_up = state.group_up, False
        calls.apply(state, function, Arguments([rank, *given], {}), node, frame)
        state.group_up = outer
    return NONE


def _call_argument(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """``checkpoint(function, *args)``."""
    if not arguments.args:
        return state.unknown()
    function, *rest = arguments.args
    inner = followed(function)
    if isinstance(inner, (Method, FunctionValue, Partial)):
        return calls.apply(state, inner, Arguments(rest, {}), node, frame)
    return state.unknown()


def _run_with_options(
    keyword: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """``fire.Fire(main)`` calls ``main`` with what the command line says."""
    function = followed(arguments.get(0, keyword) or NONE)
    if isinstance(function, FunctionValue):
        given = open_parameters(state, function, None)
        return invoke(state, function, given, {}, frame, node, more=True)
    return None


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(SPAWNS, _spawn),
    **dict.fromkeys(CALLS_FIRST_ARGUMENT, _call_argument),
    **{name: partial(_run_with_options, keyword) for name, keyword in RUNS_FUNCTION.items()},
}
