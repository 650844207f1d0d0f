"""What is remembered of a parameter, kept in the parameter's own attributes.

A weak reference would do as well, but `torch.utils.swap_tensors`, which `to_empty` of a sharded
module goes through, refuses tensors that have one (torch 2.13). Plain numbers and strings, so that
a whole pickled model can still be loaded with ``weights_only``.
"""

from __future__ import annotations

from itertools import count
from typing import cast

from torch import nn

_MARK, _REPLACED, _IGNORED = "_fsdplint_mark", "_fsdplint_replaced", "_fsdplint_ignored"
_marks = count(1)


def mark(parameter: nn.Parameter) -> int:
    """Returns a number that is this parameter object's alone, or the one it has inherited."""
    if _MARK not in parameter.__dict__:
        parameter.__dict__[_MARK] = next(_marks)
    return cast(int, parameter.__dict__[_MARK])


def inherit(parameter: nn.Parameter, number: int) -> None:
    """Gives a parameter that has no mark yet the mark of one that it stands for."""
    parameter.__dict__.setdefault(_MARK, number)


def marked(parameter: nn.Parameter) -> bool:
    """Says whether a parameter has a mark."""
    return _MARK in parameter.__dict__


def take(parameter: nn.Parameter, unit: int, name: str) -> None:
    """Notes which unit takes this parameter, and what it is called in it."""
    parameter.__dict__.setdefault(_REPLACED, (unit, name))


def taken_as(parameter: nn.Parameter) -> tuple[int, str] | None:
    """Returns the unit that took a parameter and its name there, or None."""
    return cast("tuple[int, str] | None", parameter.__dict__.get(_REPLACED))


def ignore(parameter: nn.Parameter) -> None:
    """Notes that a unit was told to leave this parameter alone."""
    parameter.__dict__[_IGNORED] = True


def ignored(parameter: nn.Parameter) -> bool:
    """Says whether a unit was told to leave this parameter alone."""
    return _IGNORED in parameter.__dict__
