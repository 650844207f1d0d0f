"""Replace objects of PyTorch under every name that its modules know them by."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any


def replace(owner: Any, name: str, new: Any) -> None:
    """Set an attribute.

    If a module owns it, the copies that ``from … import …`` made of the old object in PyTorch's
    loaded modules are replaced as well.
    """
    old = getattr(owner, name, None)
    if _is_torchs(owner) and (callable(old) or isinstance(old, ModuleType)):
        held = vars(owner).get(name) is old
        for module, key in _NAMES.of(old, held):
            setattr(module, key, new)
        _NAMES.moved(old, new)
    setattr(owner, name, new)


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function or method by ``around(original, *arguments)``; do nothing if it is absent.

    A static method stays one only if the caller makes it one again.
    """
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


def _is_torchs(owner: Any) -> bool:
    return isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == "torch"


class _Names:
    """An index of the names that hold a value in PyTorch's modules.

    Building it costs tens of milliseconds, so it is built again only after modules were loaded, or
    if a value is not where the index says.
    """

    def __init__(self) -> None:
        self._places: dict[int, list[tuple[ModuleType, str]]] = {}
        self._modules = 0

    def of(self, value: Any, held: bool) -> list[tuple[ModuleType, str]]:
        """Return the modules and names that hold a value.

        Args:
            held: whether a module surely does; what it computes on access, none does.
        """
        found = self._known(value)
        if self._modules != len(sys.modules) or (held and not found):
            self.build()
            found = self._known(value)
        return found

    def moved(self, old: Any, new: Any) -> None:
        """Record that `new` is where `old` was."""
        self._places.setdefault(id(new), []).extend(self._places.pop(id(old), []))

    def _known(self, value: Any) -> list[tuple[ModuleType, str]]:
        places = self._places.get(id(value), [])
        return [(module, key) for module, key in places if vars(module).get(key) is value]

    def build(self) -> None:
        """Look through all modules."""
        self._places.clear()
        self._modules = len(sys.modules)
        for module in list(sys.modules.values()):
            if _is_torchs(module):
                for key, value in vars(module).items():
                    self._places.setdefault(id(value), []).append((module, key))


_NAMES = _Names()


def prepare() -> None:
    """Build the index ahead of time, for this process and its forks."""
    _NAMES.build()
