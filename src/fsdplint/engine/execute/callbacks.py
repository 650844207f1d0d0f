"""Library functions that call what they are given."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.execute import calls, libraries
from fsdplint.engine.execute.functions import invoke, open_parameters
from fsdplint.engine.execute.state import Frame, PathState
from fsdplint.engine.values import (
    NONE,
    Arguments,
    FunctionValue,
    Method,
    Partial,
    Sequence,
    Symbol,
    Taint,
    Value,
    resolved,
)
from fsdplint.knowledge.options import RUNS_FUNCTION
from fsdplint.knowledge.ranks import Role


def spawn(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """``mp.spawn(fn, args=(…))`` calls ``fn(rank, *args)`` in every process."""
    function = arguments.get(0, "fn")
    args = resolved(arguments.get(1, "args") or Sequence([]))
    given = list(args.items) if isinstance(args, Sequence) else []
    if function is not None:
        rank = state.unknown(Taint.RANK)
        rank.role = Role.NUMBER
        outer, state.group_up = state.group_up, False
        calls.apply(state, function, Arguments([rank, *given], {}), node, frame)
        state.group_up = outer
    return NONE


def call_argument(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """``checkpoint(function, *args)``."""
    if not arguments.args:
        return state.unknown()
    function, *rest = arguments.args
    inner = resolved(function)
    if isinstance(inner, (Method, FunctionValue, Partial)):
        return calls.apply(state, inner, Arguments(rest, {}), node, frame)
    return state.unknown()


def run_with_options(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """``fire.Fire(main)`` calls ``main`` with what the command line says."""
    function = resolved(arguments.get(0, RUNS_FUNCTION[symbol.name]) or NONE)
    if isinstance(function, FunctionValue):
        given = open_parameters(state, function, None)
        return invoke(state, function, given, {}, frame, node, more=True)
    return libraries.unlisted(state, symbol, arguments, node, frame)
