"""What an entry point can run, by rapid type analysis (Bacon and Sweeney, OOPSLA 1996).

A definition runs what its names refer to. Of a class that something names, those methods run whose
name is read as an attribute anywhere in what runs, and those that Python, PyTorch or a decorator
calls. That is more than a path enters, so an entry that leads to no sharding call here needs none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsdplint.engine.project.project import Project
from fsdplint.engine.project.reachability import (
    every_definition,
    modules,
    sharding_in,
    targets,
)
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.knowledge.protocols import CALLED_FIRST

# Decorators of methods that run only where their name is read.
_READ_BY_NAME = frozenset(
    {"abstractmethod", "cached_property", "classmethod", "override", "property", "staticmethod"}
)
_CALLED_UNNAMED = frozenset({"forward", *CALLED_FIRST})
# `getattr(model, "save")`.
_READ = re.compile(r"\bgetattr\s*\([^()\"']*[\"'](\w+)[\"']")


@dataclass(frozen=True, slots=True)
class _References:
    """What a definition refers to, and the attributes that it reads."""

    targets: frozenset[Definition]
    attributes: frozenset[str]


class RapidTypes:
    """What leads to sharding among the definitions of a project.

    Attributes:
        handed_out: what the decorators of a file decorate, which a registry there may hand out.
        modules: the files that names refer to, once that was asked for.
        by_text: the attributes that a file reads with `getattr`, likewise.
        found: what definitions refer to, likewise.
        nowhere: definitions from which nothing leads to sharding.
        somewhere: some from which something does.
    """

    def __init__(self, project: Project, units: list[Unit]) -> None:
        self.project = project
        every = list(every_definition(units))
        self.handed_out: dict[Unit, list[Definition]] = defaultdict(list)
        for definition in every:
            for decorator in self._decorators(definition):
                self.handed_out[decorator.unit].append(definition)
        self.sharding = {each for unit in units for each in sharding_in(project, unit)}
        self.modules: dict[Unit, dict[str, list[Unit]]] = {}
        self.by_text: dict[Unit, frozenset[str]] = {}
        self.found: dict[Definition, _References] = {}
        self.nowhere: set[Definition] = set()
        self.somewhere: set[Definition] = set()

    def leads_to_sharding(self, start: Iterable[Definition]) -> bool:
        """Return whether running definitions can reach a call that shards."""
        first = list(start)
        queue = [*first]
        if self.nowhere.issuperset(queue):
            return False
        seen: set[Definition] = set()
        attributes: set[str] = set()
        unread: dict[str, list[Definition]] = defaultdict(list)
        while queue:
            definition = queue.pop()
            if definition in seen:
                continue
            seen.add(definition)
            if definition in self.sharding or definition in self.somewhere:
                self.somewhere.update(first if len(first) == 1 else ())
                return True
            for method in definition.methods.values():
                runs = _runs_unread(method) or method.name in attributes
                (queue if runs else unread[method.name]).append(method)
            refers = self._references(definition)
            for name in refers.attributes - attributes:
                queue += unread.pop(name, ())
            attributes |= refers.attributes
            queue += refers.targets - seen
        self.nowhere |= seen
        return False

    def _references(self, definition: Definition) -> _References:
        if definition not in self.found:
            attributes = definition.own_attributes
            if "getattr" in definition.own_names:
                attributes |= self._read_by_text(definition.unit)
            targets = frozenset(self._find_targets(definition))
            self.found[definition] = _References(targets, attributes)
        return self.found[definition]

    def _read_by_text(self, unit: Unit) -> frozenset[str]:
        if unit not in self.by_text:
            self.by_text[unit] = frozenset(_READ.findall(unit.text))
        return self.by_text[unit]

    def _find_targets(self, definition: Definition) -> Iterator[Definition]:
        unit = definition.unit
        if unit not in self.modules:
            self.modules[unit] = modules(self.project, unit)
        yield from targets(self.project, definition, self.modules[unit])
        yield from self._decorators(definition)
        yield from self.handed_out.get(unit, ())
        if definition.owner is not None:
            yield definition.owner

    def _decorators(self, definition: Definition) -> Iterator[Definition]:
        for name in definition.decorators:
            decorator = self.project.decorator(definition.unit, name)
            if decorator is not None:
                yield decorator


def _runs_unread(method: Definition) -> bool:
    """True if a method of a class that something names may run though nothing reads its name."""
    special = method.name.startswith("__") and method.name.endswith("__")
    return special or method.name in _CALLED_UNNAMED or bool(method.decorators - _READ_BY_NAME)
