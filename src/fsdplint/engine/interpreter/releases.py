"""Tests of the PyTorch release: decided where all releases that the code is meant for agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence as Items

from fsdplint.engine.interpreter.comparison import compare
from fsdplint.engine.interpreter.state import Effect, PathState
from fsdplint.engine.interpreter.values import Arguments, Const, Sequence, Symbol, Value
from fsdplint.knowledge.release_tests import ASKS_TORCH, PARSERS, SAME_ORDER, TORCH_VERSION
from fsdplint.knowledge.torch_range import Release

_NUMBERS = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_MIRRORED = {
    "GreaterThan": "LessThan",
    "LessThan": "GreaterThan",
    "GreaterThanEqual": "LessThanEqual",
    "LessThanEqual": "GreaterThanEqual",
    "Equal": "Equal",
    "NotEqual": "NotEqual",
}
_AT_THE_EDGE = ("GreaterThanEqual", "LessThan")
_OPERATORS = {
    ">": "GreaterThan",
    "<": "LessThan",
    ">=": "GreaterThanEqual",
    "<=": "LessThanEqual",
    "==": "Equal",
    "!=": "NotEqual",
}


def compared(state: PathState, op: str, left: Value, right: Value) -> Const | None:
    """Return the outcome of a comparison of torch's release with a constant, None if unknown.

    Args:
        op: the name of LibCST's operator class.
    """
    if _is_release(right):
        op, left, right = _MIRRORED.get(op, ""), right, left
    release = _constant(right)
    if not _is_release(left) or release is None or op not in _MIRRORED:
        return None
    if isinstance(right, Sequence) and len(right.items) < 3 and op not in _AT_THE_EDGE:
        return None  # 2.6.0 is more than (2, 6), and does not equal it
    known = state.project.torch.compares(op, release)
    return None if known is None else Const(known)


def _is_release(value: Value) -> bool:
    if not isinstance(value, Symbol) or not value.name.startswith(TORCH_VERSION):
        return False
    return set(value.name[len(TORCH_VERSION) :].split(".")) <= {"", *SAME_ORDER}


def _constant(value: Value | None) -> Release | None:
    """Return the release that a text, a tuple of numbers or a parsed version is."""
    if isinstance(value, Const) and isinstance(value.value, str):
        match = _NUMBERS.match(value.value)
        return None if match is None else _padded([int(each or 0) for each in match.groups()])
    if isinstance(value, Const):
        return _padded(value.value) if isinstance(value.value, tuple) else None
    if isinstance(value, Sequence) and value.items and not value.rest:
        return _padded([getattr(each, "value", None) for each in value.items])
    return None


def _padded(numbers: Items[object]) -> Release | None:
    major, minor, patch = (*numbers, 0, 0)[:3] if numbers else (None, None, None)
    if isinstance(major, int) and isinstance(minor, int) and isinstance(patch, int):
        return major, minor, patch
    return None


def _parsed(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    """`version.parse(…)`: torch's release is itself, and a constant its numbers."""
    given = arguments.get(0, "version")
    if given is None or _is_release(given):
        return given
    release = _constant(given)
    return None if release is None else Const(release)


def _without_label(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """`torch.__version__.split("+")`, whose first part is the release."""
    by = arguments.get(0, "sep")
    if not isinstance(by, Const) or by.value == ".":
        return None
    return Sequence([Symbol(TORCH_VERSION), state.unknown()])


def _asked(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """`is_torch_version(">=", "2.6")`."""
    by, release = arguments.get(0, "operation"), arguments.get(1, "version")
    if not isinstance(by, Const) or release is None or by.value not in _OPERATORS:
        return None
    op, torch = _OPERATORS[str(by.value)], Symbol(TORCH_VERSION)
    return compared(state, op, torch, release) or compare(op, torch, release)


EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(PARSERS, _parsed),
    **dict.fromkeys(ASKS_TORCH, _asked),
    f"{TORCH_VERSION}.split": _without_label,
}


def asks(key: object, long: Mapping[int, object]) -> bool:
    """True if a condition that is remembered by ``key`` asks for torch's release.

    Args:
        long: the keys that numbers stand for in others.
    """
    if not isinstance(key, tuple):
        return False
    if key[:1] == ("symbol",):
        return str(key[1]).startswith(TORCH_VERSION)
    if key[:1] == ("key",):
        return asks(long.get(key[1]), long)
    return any(asks(each, long) for each in key)
