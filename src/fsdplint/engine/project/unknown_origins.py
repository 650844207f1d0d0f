"""Sharding calls that a file imports from code that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from fsdplint.engine.project.imports import spelled
from fsdplint.engine.project.project import Project, names_brought
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.finding import TOP_LEVEL
from fsdplint.knowledge.calls import SHARDING_NAMES


def note_unknown_origins(project: Project, units: Iterable[Unit]) -> None:
    """Record an early stop for each such import, since what it shards was not analyzed."""
    for unit in units:
        for module, level, member in unit.bindings.values():
            if member in SHARDING_NAMES and project.lacks(module, level, unit):
                reason = f"the import of `{spelled(module, level)}` resolves to no file"
                project.stop_early(unit.path, TOP_LEVEL, reason)
        for name in sorted(_of_unknown_origin(unit) - project.sharding_names(Path(unit.path))):
            for module, level in unit.imports.stars:
                if not project.find(module, level, unit) and not names_brought(module, level):
                    star = f"`from {spelled(module, level)} import *`"
                    reason = f"`{name}` may come from {star}, which does not resolve"
                    project.stop_early(unit.path, TOP_LEVEL, reason)


def _of_unknown_origin(unit: Unit) -> frozenset[str]:
    """The names of sharding calls that the file uses and nothing in it binds."""
    used = frozenset().union(*(definition.names for definition in _definitions(unit)))
    return SHARDING_NAMES & used - unit.bindings.keys() - unit.definitions.keys()


def _definitions(unit: Unit) -> Iterator[Definition]:
    yield unit.top
    yield from unit.definitions.values()
