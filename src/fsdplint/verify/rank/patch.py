"""Puts a wrapper in the place of a function under every name torch's modules know it by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def replace_everywhere(old: Any, new: Any) -> None:
    """Replaces `old`, by identity, in the namespace of every loaded torch module: what was copied
    there by ``from … import …`` included."""
    replace_all([(old, new)])


def replace_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Does `replace_everywhere` for pairs of an old and a new value."""
    for old, new in pairs:
        for module, key in _NAMES.of(old):
            setattr(module, key, new)
        _NAMES.moved(old, new)


class _Names:
    """Which names of torch's modules hold a value.

    Looking through all of them costs tens of milliseconds, so that it is done again only after
    modules were loaded, or where a value is not where it was.
    """

    def __init__(self) -> None:
        self._places: dict[int, list[tuple[ModuleType, str]]] = {}
        self._modules = 0

    def of(self, value: Any) -> list[tuple[ModuleType, str]]:
        """Returns the modules and names that hold a value."""
        if self._modules != len(sys.modules) or not (found := self._known(value)):
            self._look()
            found = self._known(value)
        return found

    def moved(self, old: Any, new: Any) -> None:
        """Notes that `new` stands where `old` did."""
        self._places[id(new)] = self._places.pop(id(old), [])

    def _known(self, value: Any) -> list[tuple[ModuleType, str]]:
        places = self._places.get(id(value), [])
        return [(module, key) for module, key in places if vars(module).get(key) is value]

    def _look(self) -> None:
        self._places.clear()
        self._modules = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "torch" and module is not None:
                for key, value in vars(module).items():
                    self._places.setdefault(id(value), []).append((module, key))


_NAMES = _Names()


def prepare() -> None:
    """Looks through torch's modules ahead of time, for this process and its forks."""
    _NAMES.of(None)


def wrap_method(owner: type[Any], name: str, wrap: Callable[[Any], Any]) -> None:
    """Replaces a method of a class by what `wrap` makes of it."""
    setattr(owner, name, wrap(getattr(owner, name)))
