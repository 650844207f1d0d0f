"""Puts a wrapper in the place of a function under every name torch's modules know it by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any


def replace_everywhere(old: Any, new: Any) -> None:
    """Replaces `old`, by identity, in the namespace of every loaded torch module: what was copied
    there by ``from … import …`` included."""
    replace_all([(old, new)])


def replace_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Does `replace_everywhere` for pairs of an old and a new value, in one pass."""
    by_id = {id(old): new for old, new in pairs}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "torch" or module is None:
            continue
        for key, value in list(vars(module).items()):
            if id(value) in by_id:
                setattr(module, key, by_id[id(value)])


def wrap_method(owner: type[Any], name: str, wrap: Callable[[Any], Any]) -> None:
    """Replaces a method of a class by what `wrap` makes of it."""
    setattr(owner, name, wrap(getattr(owner, name)))
