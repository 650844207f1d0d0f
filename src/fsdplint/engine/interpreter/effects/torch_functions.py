"""Functions of libraries that call what they are given, give it back, or choose a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls
from fsdplint.engine.interpreter.elements import copied
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.state import Effect, Frame, Group, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Context,
    FunctionValue,
    Method,
    Object,
    Partial,
    Sequence,
    Symbol,
    Taint,
    Value,
    followed,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.calls import CALLS_FIRST_ARGUMENT
from fsdplint.knowledge.initialisation import META_CONTEXTS
from fsdplint.knowledge.launch import (
    MULTIPROCESSING,
    PROCESS_CONTEXTS,
    PROCESSES,
    RUNS_FUNCTION,
    SPAWNS,
)
from fsdplint.knowledge.ranks import Role


def _spawn(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Execute ``mp.spawn(fn, args=(…))``, which calls ``fn(rank, *args)`` in every process."""
    function = arguments.get(0, "fn")
    args = followed(arguments.get(1, "args") or Sequence([]))
    given = list(args.items) if isinstance(args, Sequence) else []
    if function is not None:
        rank = state.unknown(Taint.RANK)
        rank.role = Role.NUMBER
        outer, state.group = state.group, Group.ABSENT
        calls.apply(state, function, Arguments([rank, *given], {}), node, frame)
        state.group = outer
    return NONE


def _process(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Execute ``Process(target=worker, args=(rank, …))`` where the process is created."""
    function = followed(arguments.get(1, "target") or NONE)
    args = followed(arguments.get(3, "args") or Sequence([]))
    if isinstance(function, FunctionValue) and isinstance(args, Sequence):
        unknown = open_parameters(state, function, None)
        given = [
            parameter if getattr(parameter, "role", None) is Role.NUMBER else value
            for value, parameter in zip(args.items, unknown, strict=False)
        ]
        outer, state.group = state.group, Group.ABSENT
        invoke(state, function, given, {}, frame, node, more=True)
        state.group = outer
    return state.unknown()


def _contexts(*_: object) -> Value:
    """Return what ``get_context("spawn")`` offers: the functions of the module."""
    return Symbol(MULTIPROCESSING)


def _call_argument(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Execute ``checkpoint(function, *args)``."""
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
    """Execute ``fire.Fire(main)``, which calls ``main`` with options of the command line."""
    function = followed(arguments.get(0, keyword) or NONE)
    if isinstance(function, FunctionValue):
        given = open_parameters(state, function, None)
        return invoke(state, function, given, {}, frame, node, more=True)
    return None


def _argument(position: int, state: PathState, arguments: Arguments, *_: object) -> Value:
    values = arguments.values()
    return values[position] if len(values) > position else state.unknown()


def _compiled(state: PathState, arguments: Arguments, *_: object) -> Value:
    """Return the model; a compiled module's ``forward`` is its ``__call__`` (torch 2.13)."""
    model = _argument(0, state, arguments)
    module = followed(model)
    if arguments.values() and isinstance(module, Object):
        module.hooked_methods.add("forward")
    return model


def _copied(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    return copied(arguments.args[0]) if arguments.args else None


def _meta_context(*_: object) -> Value:
    return Context("meta", ())


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(known.COPIES_CONTAINER, _copied),
    **{name: partial(_argument, position) for name, position in known.RETURNS_ARGUMENT.items()},
    known.COMPILE: _compiled,
    **dict.fromkeys(META_CONTEXTS, _meta_context),
    **dict.fromkeys(SPAWNS, _spawn),
    **dict.fromkeys(PROCESSES, _process),
    **dict.fromkeys(PROCESS_CONTEXTS, _contexts),
    **dict.fromkeys(CALLS_FIRST_ARGUMENT, _call_argument),
    **{name: partial(_run_with_options, keyword) for name, keyword in RUNS_FUNCTION.items()},
}
