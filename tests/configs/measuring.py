"""Compares a table of settings with what the installed release does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings

# Not by the name of the folder: verl installs a package that is called so.
sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_settings import measured_in


def installed(package: str, every: Sequence[Settings]) -> Settings:
    """What is known of the release that is imported: `.ci/run` puts others in front."""
    release = tuple(map(int, version(package).split(".")[:2]))
    return next(each for each in every if each.release == release)


def expect_as_measured(package: str, own: Settings, module: str = "") -> None:
    known = {
        (name, number, own.has_effect(name, number), own.takes(name, number))
        for name, number in own.rows
    }
    found = find_spec(package)
    assert found is not None and found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0]).parent
    rows = measured_in([str(folder)], module or f"{package}_settings")
    measured = {
        (name, number, effect, frozenset(takes.split())) for name, number, effect, takes in rows
    }
    nothing = (False, frozenset())
    assert {row for row in measured if row[2:] != nothing} == {
        row for row in known if row[2:] != nothing
    }
