"""What is said to have moved is where it is said to be, on the torch that is installed."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import version

import pytest

from fsdplint.knowledge.moved_names import CAME, GONE, Moved

INSTALLED = tuple(int(part) for part in version("torch").split("+")[0].split(".")[:3])


def is_there(name: str) -> bool:
    package, _, last = name.rpartition(".")
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except (ImportError, AttributeError):
        pass
    try:
        return hasattr(importlib.import_module(package), last)
    except ImportError:
        return False


@pytest.mark.parametrize("name", GONE, ids=lambda moved: moved.old)
def test_what_is_gone_is_at_its_new_place(name: Moved) -> None:
    assert is_there(name.old) == (name.gone > INSTALLED)
    assert bool(name.new) != bool(name.instead)
    assert not name.new or is_there(name.new) == (name.since <= INSTALLED)


@pytest.mark.parametrize("name", CAME)
def test_what_came_is_there(name: str) -> None:
    since, before = CAME[name]
    assert is_there(name) == (since <= INSTALLED)
    assert not before or is_there(f"{before}.{name.rpartition('.')[2]}")
