"""Calls that give back what they are given: compiled, wrapped, or a copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fsdplint.engine.interpreter.elements import copied
from fsdplint.engine.interpreter.state import Effect, PathState
from fsdplint.engine.interpreter.values import Arguments, Object, Value, followed
from fsdplint.knowledge import calls as known


def _argument(position: int, state: PathState, arguments: Arguments, *_: object) -> Value:
    values = arguments.values()
    return values[position] if len(values) > position else state.unknown()


def _compiled(state: PathState, arguments: Arguments, *_: object) -> Value:
    """A compiled module's ``forward`` is its ``__call__`` (OptimizedModule, torch 2.13)."""
    model = _argument(0, state, arguments)
    module = followed(model)
    if arguments.values() and isinstance(module, Object):
        module.hooked_methods.add("forward")
    return model


def _copied(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    return copied(arguments.args[0]) if arguments.args else None


EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(known.COPIES_CONTAINER, _copied),
    **{name: partial(_argument, position) for name, position in known.RETURNS_ARGUMENT.items()},
    known.COMPILE: _compiled,
}
