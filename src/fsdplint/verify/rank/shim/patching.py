"""Replacing objects of PyTorch under every name that its modules know them by."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

_replaced: dict[int, tuple[object, object]] = {}


def replace(owner: object, name: str, new: object) -> None:
    """Set an attribute; a module's object is replaced in all of PyTorch's modules by `spread`."""
    old = getattr(owner, name, None)
    if isinstance(owner, ModuleType) and (callable(old) or isinstance(old, ModuleType)):
        _replaced[id(old)] = (old, new)
    setattr(owner, name, new)


def wrap(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around(original, *arguments)`; one that is absent is left alone."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    replace(owner, name, wrapper)


def overlay(owner: ModuleType, source: ModuleType) -> None:
    """Put the functions and classes that `source` defines over those of `owner`."""
    for name, value in vars(source).items():
        ours = isinstance(value, FunctionType | type) and value.__module__ == source.__name__
        if ours and hasattr(owner, name):
            replace(owner, name, value)


def spread() -> None:
    """Replace the copies that `from … import` made in PyTorch's loaded modules."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != "torch" or not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            found = _replaced.get(id(value))
            if found is not None and found[0] is value:
                setattr(module, name, found[1])
    _replaced.clear()
