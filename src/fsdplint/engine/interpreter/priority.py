"""Priority: how much a block of statements promises to a path that follows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.project.project import Project, identifiers
from fsdplint.engine.project.reachability import modules
from fsdplint.engine.project.unit import Definition, Unit

# Branches by what they test, each with whether the test is negated.
Branches = dict[str, list[tuple[ir.If, bool]]]

# The priority of code that may shard.
SHARDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Priorities:
    """Names by which code refers to sharding, and to anything else that causes events.

    Code is judged by the names that occur in it, so a name too many costs time and loses nothing.
    """

    sharding: frozenset[str]
    events: frozenset[str]
    _priorities: dict[ir.Node, int] = field(default_factory=dict)
    _mentioned: dict[ir.Node, frozenset[str]] = field(default_factory=dict)
    _leading: dict[tuple[ir.Node, ...], bool] = field(default_factory=dict)
    _branches: dict[ir.Node, Branches] = field(default_factory=dict)
    _modules: dict[Unit, dict[str, list[Unit]]] = field(default_factory=dict)

    def priority(self, nodes: Sequence[ir.Node]) -> int:
        """Return the priority of ``nodes``: 3 if they may shard, 2 for another event, else 1."""
        return max(map(self._priority_of, nodes), default=1)

    def may_shard(self, nodes: Sequence[ir.Node]) -> bool:
        """True if code can reach an event that a rule may ask about."""
        return self.priority(nodes) > 1

    def leads_to_events(self, project: Project, nodes: Sequence[ir.Node], unit: Unit) -> bool:
        """True if code can reach an event, through any number of functions of known names.

        A method is known by its name too, if a class of the same file has it, and a function of a
        module that the code names.
        """
        key = tuple(nodes)
        if key not in self._leading:
            mentioned = {name for node in nodes for name in self._names(node)}
            leads = self.may_shard(nodes) or self._mention_events(project, unit, mentioned)
            self._leading[key] = leads
        return self._leading[key]

    def branches(self, scope: ir.Module | ir.Function, text: str) -> Branches:
        """Return the branches of a function, without those of inner ones, by what they test.

        One that tests several things is there by each if it may shard.
        """
        if scope not in self._branches:
            found = self._branches[scope] = defaultdict(list)
            for node in ir.walk_scope(*scope.body):
                if isinstance(node, ir.If):
                    shards = self.priority([*node.body, *node.orelse]) == SHARDS
                    for part in ir.operands(node.test) if shards else (node.test,):
                        asked, negated = spelled(text, part)
                        found[asked].append((node, negated))
        return self._branches[scope]

    def _priority_of(self, node: ir.Node) -> int:
        if node not in self._priorities:
            mentioned = self._names(node)
            other = 1 if mentioned.isdisjoint(self.events) else 2
            self._priorities[node] = other if mentioned.isdisjoint(self.sharding) else SHARDS
        return self._priorities[node]

    def _names(self, node: ir.Node) -> frozenset[str]:
        """Return the names and attributes that occur in ``node``."""
        if node not in self._mentioned:
            names, attributes = identifiers(node)
            self._mentioned[node] = names | attributes
        return self._mentioned[node]

    def _mention_events(self, project: Project, unit: Unit, names: Set[str]) -> bool:
        seen: set[Definition] = set()
        queue = [(unit, names)]
        while queue:
            for found in self._definitions(project, *queue.pop()):
                if found in seen:
                    continue
                seen.add(found)
                mentioned = found.names | found.attributes
                if not self.events.isdisjoint(mentioned):
                    return True
                queue.append((found.unit, mentioned))
        return False

    def _definitions(self, project: Project, unit: Unit, names: Set[str]) -> Iterator[Definition]:
        """Yield what names and attributes refer to, methods of the same file included."""
        if unit not in self._modules:
            self._modules[unit] = modules(project, unit)
        named = self._modules[unit]
        for target in (unit, *(each for name in named.keys() & names for each in named[name])):
            for name in names:
                found = project.loaded_definition(target, name)
                if found is not None:
                    yield found
        for each in unit.definitions.values():
            yield from (each.methods[name] for name in each.methods.keys() & names)


def spelled(text: str, test: ir.Node) -> tuple[str, bool]:
    """Return the text of a test without its ``not``, and whether it has one."""
    operand = test.operand if isinstance(test, ir.Not) else test
    return text[operand.start : operand.end], operand is not test
