"""Methods of containers, state dicts and texts."""

from __future__ import annotations

import re
from dataclasses import replace

from fsdplint.engine.interpreter import subscripts
from fsdplint.engine.interpreter.elements import (
    copied,
    element_of,
    hashable,
    materialized,
    merge,
    store_key,
)
from fsdplint.engine.interpreter.expressions import MAX_TEXT
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Const,
    Mapping,
    Sequence,
    StateDict,
    Taint,
    Value,
    choice,
    followed,
)
from fsdplint.knowledge import calls as known


def container_method(
    state: PathState, receiver: Sequence | Mapping, name: str, arguments: Arguments, frame: Frame
) -> Value:
    if isinstance(receiver, Sequence):
        return _sequence_method(state, receiver, name, arguments, frame)
    return _mapping_method(state, receiver, name, arguments)


def _sequence_method(
    state: PathState, receiver: Sequence, name: str, arguments: Arguments, frame: Frame
) -> Value:
    """Call a method of a list, set, deque, iterator or exit stack."""
    values = arguments.args
    if name in ("append", "add", "insert", "appendleft"):
        receiver.rest.extend(materialized(state, value) for value in values[-1:])
        receiver.repeated |= frame.loops > 0
    elif name in ("extend", "update") and values:
        inner = followed(values[0])
        receiver.rest.append(element_of(state, inner))
    elif name in ("pop", "popleft"):
        return element_of(state, receiver)
    elif name == "copy":
        return copied(receiver)
    elif name == "enter_context" and values:
        return values[0]
    return NONE


def _mapping_method(state: PathState, receiver: Mapping, name: str, arguments: Arguments) -> Value:
    """Call a method of a dict."""
    values = arguments.args
    if name == "setdefault" and len(values) > 1 and isinstance(values[0], Const):
        return receiver.items.setdefault(hashable(values[0].value), values[1])
    if name in ("get", "pop") and values:
        return _mapping_get(state, receiver, values)
    if name == "update":
        for value in values:
            merge(receiver, followed(value))
        for key, value in arguments.keywords.items():
            store_key(receiver, Const(key), value)
    if name == "copy":
        return copied(receiver)
    held = [*receiver.items.values(), *receiver.rest]
    if name == "values":
        return Sequence(list(receiver.items.values()), list(receiver.rest))
    if name == "keys":
        return Sequence(
            [Const(key) for key in receiver.items], [state.unknown()] if receiver.rest else []
        )
    if name == "items":
        known_pairs: list[Value] = [
            Sequence([Const(k), v], kind="tuple") for k, v in receiver.items.items()
        ]
        pairs: list[Value] = [
            Sequence([state.unknown(Taint.ELEMENT), v], kind="tuple") for v in receiver.rest
        ]
        return Sequence(known_pairs, pairs)
    return choice(held) if name == "popitem" and held else NONE


def _mapping_get(state: PathState, receiver: Mapping, values: list[Value]) -> Value:
    """Evaluate ``mapping.get(key, default)``."""
    absent = isinstance(values[0], Const) and hashable(values[0].value) not in receiver.items
    if absent and not receiver.rest:
        return values[1] if len(values) > 1 else NONE
    return subscripts.mapping_item(state, receiver, values[0])


def state_method(state: PathState, receiver: StateDict, name: str, arguments: Arguments) -> Value:
    """Call a method of a state dict, or of one value in it."""
    element = replace(receiver, element=True)
    if receiver.element:
        return receiver if name in known.KEEPS_SHARDED else state.unknown()
    if name == "items":
        return Sequence([], [Sequence([state.unknown(Taint.ELEMENT), element], kind="tuple")])
    if name == "values":
        return Sequence([], [element])
    if name in ("get", "pop") and arguments.args:
        entry = subscripts.entry(state, receiver, arguments.args[0])
        return element if isinstance(entry, StateDict) else entry
    if name == "copy":
        return receiver
    if name == "update":
        receiver.escaped = True
    return state.unknown(Taint.ELEMENT)


def text_method(text: str, name: str, arguments: Arguments) -> Const | None:
    """Return what a method makes of a known text, such as ``"FSDP".lower()``, or None."""
    given = [value.value for value in arguments.args if isinstance(value, Const)]
    known_all = len(given) == len(arguments.args) and not arguments.keywords
    if name not in _TEXT_METHODS or arguments.open or not known_all:
        return None
    if name == "format" and _FORMATS.search(text):
        return None
    if name == "replace" and len(text) * max(len(str(each)) for each in (*given, "")) > MAX_TEXT:
        return None
    try:
        made = getattr(text, name)(*given)
    except (TypeError, IndexError, KeyError, ValueError):
        return None
    return Const(made) if len(str(made)) <= MAX_TEXT else None


# A field with a format of its own, which may be wide.
_FORMATS = re.compile(r"\{[^}]*[:!.\[]")
_TEXT_METHODS = frozenset(
    {
        "casefold",
        "endswith",
        "format",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "rstrip",
        "startswith",
        "strip",
        "upper",
    }
)
