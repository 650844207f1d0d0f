"""What is said to have moved is where it is said to be, on the torch that is installed."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from importlib.metadata import version

import pytest

from fsdplint.knowledge.moved_names import BEFORE, GONE, Moved
from fsdplint.knowledge.torch_api import first_releases

INSTALLED = tuple(int(part) for part in version("torch").split("+")[0].split(".")[:3])


# Backends that a build for another device has, and what a release had once.
NOT_IN_EVERY_BUILD = {
    f"torch.distributed.ProcessGroup{each}" for each in ("CudaP2P", "MPI", "NCCL", "UCC", "XCCL")
} | {"torch.distributed.tensor.placement_types.MaskPartial"}


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


def is_reached(name: str) -> bool:
    """True if a name is there, or the attribute of a class."""
    owner, _, last = name.rpartition(".")
    return is_there(name) or (is_there(owner) and hasattr(pkgutil.resolve_name(owner), last))


@pytest.mark.parametrize("name", GONE, ids=lambda moved: moved.old)
def test_what_is_gone_is_at_its_new_place(name: Moved) -> None:
    assert is_there(name.old) == (name.gone > INSTALLED)
    assert bool(name.new) != bool(name.instead)
    assert not name.new or is_there(name.new) == (name.since <= INSTALLED)


@pytest.mark.parametrize("name", BEFORE)
def test_what_came_was_elsewhere_before(name: str) -> None:
    assert is_there(name)
    assert first_releases()[name] > (2, 4, 0)
    assert is_there(f"{BEFORE[name]}.{name.rpartition('.')[2]}")


def test_names_are_there_from_their_first_release_on() -> None:
    with_it = {name: is_reached(name) for name in first_releases()}
    expected = {name: first <= INSTALLED for name, first in first_releases().items()}
    assert {name for name in expected if with_it[name] != expected[name]} <= NOT_IN_EVERY_BUILD
