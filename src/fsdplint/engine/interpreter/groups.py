"""Whether the default process group is up, as far as a path knows: None where it does not.

A script starts without one. Code that is not read may make one at any time, and none that is up is
presumed to go down but by `destroy_process_group`.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.engine.interpreter.state import Flow
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    Symbol,
    Value,
    class_names,
    contained,
)
from fsdplint.knowledge.collectives import C10D_CALLS
from fsdplint.knowledge.launch import DESTROY, DEVICE_MESH, GET_RANK, GET_WORLD_SIZE, INIT, MESHES
from fsdplint.knowledge.packages import may_set_up

_MAKES = frozenset({INIT, *MESHES, DEVICE_MESH})
# Where one of these is called, something has made it.
_NEEDS = frozenset({*C10D_CALLS, GET_RANK, GET_WORLD_SIZE})


def after_call(up: bool | None, name: str, arguments: Arguments) -> bool | None:
    """What is known behind a call of a library's function or class."""
    if name in _MAKES:
        return True
    if name == DESTROY:
        return up if arguments.values() else False
    if up is False and (name in _NEEDS or may_set_up(name) or _hands_on(arguments.values())):
        return None
    return up


def _hands_on(values: Iterable[Value]) -> bool:
    """Whether a library is given a class that sets up what it runs on when it is made."""
    items = [item for value in values for item in contained(value)]
    classes = [item for item in items if isinstance(item, (ClassValue, Symbol))]
    return any(may_set_up(name) for cls in classes for name in class_names(cls))


def joined(flows: list[Flow], states: list[bool | None]) -> bool | None:
    """What is known behind two arms that both run: that of the one that goes on, if one does."""
    going = [state for flow, state in zip(flows, states, strict=True) if flow is Flow.NEXT]
    known = set(going or states)
    return known.pop() if len(known) == 1 else None
