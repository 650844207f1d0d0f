"""Compares a table of settings with what the installed release does."""

from __future__ import annotations

from importlib.metadata import version

from fsdplint.knowledge.accelerate_settings import Settings
from scripts.accelerate_settings import measured_in


def expect_as_measured(package: str, newest: Settings) -> None:
    release = ".".join(map(str, newest.release))
    assert version(package).rpartition(".")[0] == release
    known = {
        (name, number, newest.has_effect(name, number), newest.takes(name, number))
        for name, number in newest.rows
    }
    rows = measured_in([], f"{package}_settings")
    found = {
        (name, number, effect, frozenset(takes.split())) for name, number, effect, takes in rows
    }
    nothing = (False, frozenset())
    assert {row for row in found if row[2:] != nothing} == {
        row for row in known if row[2:] != nothing
    }
