"""What an entry point can run, by rapid type analysis (Bacon and Sweeney, OOPSLA 1996).

A definition runs what its names refer to. Of a class that something names, those methods run whose
name is read as an attribute anywhere in what runs, and those that Python, PyTorch or a decorator
calls. That is more than a path enters, so an entry that leads to no sharding call here needs none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from fsdplint.engine.project.project import Project
from fsdplint.engine.project.reachability import (
    every_definition,
    modules,
    sharding_attributes,
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
# Code that another file's name as text leads to.
_FOUND_BY_TEXT = frozenset({"__import__", "globals", "import_module"})


class RapidTypes:
    """What leads to sharding among the definitions of a project.

    Attributes:
        handed_out: what the decorators of a file decorate, which a registry there may hand out.
        found: what definitions refer to, once that was asked for.
        nowhere: definitions from which nothing leads to sharding.
    """

    def __init__(self, project: Project, units: list[Unit]) -> None:
        self.project = project
        every = list(every_definition(units))
        self.handed_out: dict[Unit, list[Definition]] = defaultdict(list)
        for definition in every:
            for decorator in self._decorators(definition):
                self.handed_out[decorator.unit].append(definition)
        self.sharding = {each for each in every if self._shards(each)}
        self.modules: dict[Unit, dict[str, list[Unit]]] = {}
        self.found: dict[Definition, list[Definition]] = {}
        self.nowhere: set[Definition] = set()

    def leads_to_sharding(self, start: Iterable[Definition]) -> bool:
        """Return whether running definitions can reach a call that shards."""
        queue = list(start)
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
            if definition in self.sharding or definition.own_names & _FOUND_BY_TEXT:
                return True
            for method in definition.methods.values():
                runs = _runs_unread(method) or method.name in attributes
                (queue if runs else unread[method.name]).append(method)
            for name in self._attributes(definition) - attributes:
                attributes.add(name)
                queue += unread.pop(name, ())
            queue += self._targets(definition)
        self.nowhere |= seen
        return False

    def _shards(self, definition: Definition) -> bool:
        names = self.project.sharding_names(Path(definition.unit.path))
        attributes = sharding_attributes(definition.unit)
        return bool(definition.own_names & names or definition.own_attributes & attributes)

    def _attributes(self, definition: Definition) -> frozenset[str]:
        if "getattr" not in definition.own_names:
            return definition.own_attributes
        return definition.own_attributes.union(_READ.findall(definition.unit.text))

    def _targets(self, definition: Definition) -> list[Definition]:
        if definition not in self.found:
            self.found[definition] = list(self._find_targets(definition))
        return self.found[definition]

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
            decorator = self.project.loaded_definition(definition.unit, name)
            if decorator is not None:
                yield decorator


def _runs_unread(method: Definition) -> bool:
    """True if a method of a class that something names may run though nothing reads its name."""
    special = method.name.startswith("__") and method.name.endswith("__")
    return special or method.name in _CALLED_UNNAMED or bool(method.decorators - _READ_BY_NAME)
