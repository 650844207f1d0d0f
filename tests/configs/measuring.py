"""Compares a table of settings with what the installed release does."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import Settings
from scripts.accelerate_settings import measured_in


def installed(package: str, every: Sequence[Settings]) -> Settings:
    """What is known of the release that is imported: `.ci/run` puts the oldest in front."""
    version = importlib.import_module(package).__version__
    release = tuple(map(int, version.split(".")[:2]))
    return next(each for each in every if each.release == release)


def expect_as_measured(package: str, own: Settings, module: str = "") -> None:
    known = {
        (name, number, own.has_effect(name, number), own.takes(name, number))
        for name, number in own.rows
    }
    folder = Path(importlib.import_module(package).__path__[0]).parent
    rows = measured_in([str(folder)], module or f"{package}_settings")
    found = {
        (name, number, effect, frozenset(takes.split())) for name, number, effect, takes in rows
    }
    nothing = (False, frozenset())
    assert {row for row in found if row[2:] != nothing} == {
        row for row in known if row[2:] != nothing
    }
