"""Which definitions may shard, and which of them surely do.

A definition may shard if running it can reach a sharding call: it names one, or names something
that may shard. Branches with such names get a path of their own. Entry points are the definitions
that surely refer to sharding, by names that resolve or by a method that shards in all classes that
implement it, and not just by an attribute that other classes have too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from fsdplint.engine.project.project import Project
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.knowledge.calls import SETTING_NAMES, SHARDING_NAMES
from fsdplint.knowledge.frameworks import FRAMEWORK_NAMES, LAUNCHED_NAMES

# An attribute name that more definitions share than this could refer to any of them.
_MAX_NAMESAKES = 3

# A node between many definitions and many users, since an edge for each pair would be their number
# squared: all definitions of a name (in one file, or in all files for None), or all of a file.
_Group = tuple[Unit | None, str] | Unit
Users = dict[Definition | _Group, list[Definition | _Group]]


def mark_reachability(project: Project, units: list[Unit]) -> None:
    """Mark the definitions of ``units`` that can reach a sharding call."""
    every = list(every_definition(units))
    decorated = _decorated(project, every)  # first, since this loads the registries
    users = _users(project, units)
    shards = [each for unit in units for each in sharding_in(project, unit)]
    surely = _spread(shards, users, decorated)
    # Only in this order: what a registry hands out does not concern what else it decorates.
    _hand_out(project, surely, users)
    surely = _spread(surely, users)
    surely = _spread(surely, users, _by_interfaces(every, surely))
    _refer_loosely(every, users)
    maybe = _spread(shards, users)
    # Those of registries are in none of the units.
    for definition in {*every, *maybe, *surely}:
        definition.may_shard, definition.entry = definition in maybe, definition in surely
        if definition.may_shard and is_registered(project, definition):
            definition.unit.registers = True


def is_registered(project: Project, definition: Definition) -> bool:
    """True if code of the project decorates it, so that importing it has effects."""
    return any(project.keeps(definition.unit, name) for name in definition.decorators)


def _spread(start: Iterable[Definition], *users: Users) -> set[Definition]:
    """Return ``start`` and everything that refers to it, through any number of others."""
    queue: list[Definition | _Group] = list(start)
    found = set(queue)
    while queue:
        last = queue.pop()
        fresh = {user for each in users for user in each.get(last, ())} - found
        found |= fresh
        queue.extend(fresh)
    return {each for each in found if isinstance(each, Definition)}


def every_definition(units: Iterable[Unit]) -> Iterator[Definition]:
    """Yield the definitions of files, methods included."""
    for unit in units:
        yield unit.top
        for top in unit.definitions.values():
            yield top
            yield from top.methods.values()


def _users(project: Project, units: list[Unit]) -> Users:
    """Return who refers to a definition: by a name that resolves to it, or in the same class."""
    users: Users = defaultdict(list)
    for unit in units:
        named = modules(project, unit)
        for definition in every_definition([unit]):
            for target in targets(project, definition, named):
                users[target].append(definition)
            if definition.owner is not None:
                users[definition].append(definition.owner)
    return users


def _decorated(project: Project, every: Iterable[Definition]) -> Users:
    """Return the definitions that each function or class decorates."""
    found: Users = defaultdict(list)
    for definition in every:
        for name in definition.decorators:
            decorator = project.definition(definition.unit, name)
            if decorator is not None:
                found[decorator].append(definition)
    return found


def _hand_out(project: Project, registered: Iterable[Definition], users: Users) -> None:
    """Add that definitions beside a decorator may use what it decorates."""
    for definition in registered:
        for name in definition.decorators:
            decorator = project.decorator(definition.unit, name)
            if decorator is not None:
                users[definition].append(decorator.unit)
                users[decorator.unit] = [*decorator.unit.definitions.values()]


def targets(
    project: Project, definition: Definition, named: dict[str, list[Unit]]
) -> Iterator[Definition]:
    """Yield what a definition refers to: names, ``self.method`` and ``module.function``."""
    owner = definition.owner
    if owner is not None:
        for attribute in definition.own_attributes & owner.methods.keys():
            yield owner.methods[attribute]
    for name in definition.own_names:
        target = project.loaded_definition(definition.unit, name)
        if target is not None:
            yield target
        for module in named.get(name, ()):
            for attribute in definition.own_attributes:
                if (member := project.loaded_definition(module, attribute)) is not None:
                    yield member


def modules(project: Project, unit: Unit) -> dict[str, list[Unit]]:
    """Return the files that a name may refer to in ``unit`` as modules."""
    found: dict[str, list[Unit]] = defaultdict(list)
    meant = [
        (name, f"{module}.{member}".lstrip(".") if member else module, level)
        for name, (module, level, member) in unit.bindings.items()
    ]
    dotted = unit.imports.modules
    meant += [(module.split(".")[0], module, 0) for module, level in dotted if not level]
    for name, module, level in meant:
        target = project.loaded_module(unit, module, level)
        if target is not None:
            found[name].append(target)
    return found


def _by_interfaces(every: list[Definition], surely: set[Definition]) -> Users:
    """Return who reads the name of an abstract method all of whose implementations shard."""
    methods: dict[str, list[Definition]] = defaultdict(list)
    abstract: set[str] = set()
    for definition in every:
        if "abstractmethod" in definition.decorators:
            abstract.add(definition.name)
        elif definition.owner is not None:
            methods[definition.name].append(definition)
    sharding = {name for name in abstract & methods.keys() if surely.issuperset(methods[name])}
    users: Users = defaultdict(list)
    for definition in every if sharding else ():
        for name in definition.own_attributes & sharding:
            users[methods[name][0]].append(definition)
    return users


def _refer_loosely(every: list[Definition], users: Users) -> None:
    """Add what attributes may refer to: in the same file, or anywhere if few share the name."""
    counts = Counter(definition.name for definition in every)

    def meant(name: str, unit: Unit) -> _Group:
        return None if counts[name] <= _MAX_NAMESAKES else unit, name

    for definition in every:
        users[definition].append(meant(definition.name, definition.unit))
        for attribute in definition.attributes & counts.keys():
            users[meant(attribute, definition.unit)].append(definition)


def sharding_in(project: Project, unit: Unit) -> Iterator[Definition]:
    """Yield the definitions of a file that name a sharding call, or what makes a library shard."""
    names = project.sharding_names(Path(unit.path))
    framework = FRAMEWORK_NAMES if unit.sets_sharding else frozenset()
    launched = LAUNCHED_NAMES if project.is_launched(unit.text) else frozenset()
    attributes = SHARDING_NAMES | SETTING_NAMES | framework | launched
    for definition in every_definition([unit]):
        if definition.own_names & names or definition.own_attributes & attributes:
            yield definition
