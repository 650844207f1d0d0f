"""Which files and definitions matter: those that can reach a sharding call, and their users.

A definition is hot when running it may shard: it names a sharding call, or something hot. Branches
with hot names are worth a path of their own; entries are the definitions that surely refer to
sharding, by names that resolve, and not just by an attribute that others have too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fsdplint.engine.imports import imported_modules
from fsdplint.engine.link import Project
from fsdplint.engine.sieve import mentions_sharding
from fsdplint.engine.unit import Definition, Unit
from fsdplint.knowledge.calls import SHARDING_NAMES

# Up to so many importers every one is read; of more, those that name what they import.
_MAX_IMPORTERS = 60
_MAX_NAMING = 200
# An attribute name that more definitions share than this says nothing about which is meant.
_MAX_NAMESAKES = 3


def related_units(
    project: Project, files: Iterable[Path], focus: Collection[Path] | None = None
) -> list[Unit]:
    """The units that take part in sharding, in file order.

    These are the files that hold a sharding call and those that import them, through any number of
    files; where that is a large part of a large project, only those that name what they import.

    Args:
        focus: if given, only the programs that these files are a part of are wanted: what they
            import, what imports them, and what that imports.
    """
    texts = {path: text for path in files if (text := project.read(path)) is not None}
    strict = [path for path, text in texts.items() if mentions_sharding(text)]
    graph = _imports(project, texts)
    if focus is not None:
        users = _reach(focus, _reversed(graph))
        program = frozenset(_reach(users, graph))
        strict = [path for path in strict if path in program]
        texts = {path: text for path, text in texts.items() if path in program}
    importers = [path for path in _reach(strict, _reversed(graph)) if path in texts]
    importers = importers[len(strict) :]
    if len(importers) > _MAX_IMPORTERS:
        if focus is not None:
            wanted = frozenset(focus)  # first, so that a budget is not spent on others
            importers.sort(key=lambda path: path not in wanted)
        importers = _naming(project, texts, strict, importers)
    chosen = {*strict, *importers}
    units = [unit for path in texts if path in chosen and (unit := project.unit(path)) is not None]
    heat(project, units)
    return units


Graph = dict[Path, list[Path]]


def _imports(project: Project, texts: dict[Path, str]) -> Graph:
    """The files that each file imports."""
    graph: Graph = {}
    for path, text in texts.items():
        modules = dict.fromkeys(imported_modules(text))
        found = [project.find(module, level, path.parent) for module, level in modules]
        graph[path] = [target for target in found if target is not None]
    return graph


def _reversed(graph: Graph) -> Graph:
    users: Graph = defaultdict(list)
    for path, targets in graph.items():
        for target in targets:
            users[target].append(path)
    return users


def _reach(start: Iterable[Path], graph: Graph) -> list[Path]:
    """``start`` and all that can be reached from it, nearest first."""
    queue = list(start)
    seen = set(queue)
    for current in queue:
        fresh = [path for path in dict.fromkeys(graph.get(current, ())) if path not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return queue


def _naming(
    project: Project, texts: dict[Path, str], strict: list[Path], importers: list[Path]
) -> list[Path]:
    """Those importers that name a function or class which can reach a sharding call."""
    units = [unit for path in strict if (unit := project.sketch(path)) is not None]
    chosen: list[Path] = []
    for _ in range(6):
        heat(project, units)
        carriers = _carriers(units)
        every = [
            path for path in importers if path not in chosen and _names_one(texts[path], carriers)
        ]
        fresh = every[: _MAX_NAMING - len(chosen)]
        for path in every[len(fresh) :]:
            place = (str(path), "<module>")
            project.exhausted[place] = f"more than {_MAX_NAMING} files use code that shards"
            project.overlong.add(place)
        added = [unit for path in fresh if (unit := project.sketch(path)) is not None]
        if not added:
            break
        chosen.extend(fresh)
        units.extend(added)
    return chosen


def _names_one(text: str, carriers: dict[str, set[str]]) -> bool:
    return any(
        stem in text and any(name in text for name in names) for stem, names in carriers.items()
    )


def _carriers(units: Iterable[Unit]) -> dict[str, set[str]]:
    """Names of hot definitions, by the module name that they can be imported from."""
    found: dict[str, set[str]] = defaultdict(set)
    for unit in units:
        path = Path(unit.path)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        found[stem].update(
            definition.name
            for definition in unit.definitions.values()
            if definition.hot and definition.name not in ("main", "train")
        )
    return found


def heat(project: Project, units: list[Unit]) -> None:
    """Marks the definitions of ``units`` that can reach a sharding call, by what they refer to."""
    every = list(_every_definition(units))
    users = _users(project, every)
    shards = [definition for definition in every if _shards(project, definition)]
    surely = _spread(shards, users)
    for user, targets in _loose_references(every):
        for target in targets:
            users[target].append(user)
    maybe = _spread(shards, users)
    for definition in every:
        definition.hot, definition.entry = definition in maybe, definition in surely
        if definition.hot and _is_registered(project, definition):
            definition.unit.registers = True


def _spread(start: list[Definition], users: dict[Definition, list[Definition]]) -> set[Definition]:
    """``start`` and all that refer to it, through any number of others."""
    queue, found = list(start), set(start)
    while queue:
        fresh = set(users.get(queue.pop(), ())) - found
        found |= fresh
        queue.extend(fresh)
    return found


def _is_registered(project: Project, definition: Definition) -> bool:
    """Whether a function of the project decorates it, so that importing the file has effects."""
    unit = definition.unit
    for name in definition.decorators:
        module, level, _ = unit.bindings.get(name, ("", 0, None))
        imported = name in unit.bindings and project.find(module, level, unit) is not None
        if imported or name in unit.definitions:
            return True
    return False


def _every_definition(units: Iterable[Unit]) -> Iterator[Definition]:
    for unit in units:
        for top in unit.definitions.values():
            yield top
            yield from top.methods.values()


def _users(project: Project, every: list[Definition]) -> dict[Definition, list[Definition]]:
    """Who refers to a definition: by a name that means it, or as a method of the same class."""
    users: dict[Definition, list[Definition]] = defaultdict(list)
    for definition in every:
        owner = definition.owner
        if owner is not None:
            users[definition].append(owner)
            for attribute in definition.attributes & owner.methods.keys():
                users[owner.methods[attribute]].append(definition)
        for name in definition.names:
            target = project.loaded_definition(definition.unit, name)
            if target is not None:
                users[target].append(definition)
    return users


def _loose_references(every: list[Definition]) -> Iterator[tuple[Definition, list[Definition]]]:
    """What attributes may mean: those of the same file, or any where few have the name."""
    named: dict[str, list[Definition]] = defaultdict(list)
    for definition in every:
        named[definition.name].append(definition)
    for user in every:
        for attribute in user.attributes:
            namesakes = named.get(attribute, [])
            few = len(namesakes) <= _MAX_NAMESAKES
            yield user, [each for each in namesakes if few or each.unit is user.unit]


def _shards(project: Project, definition: Definition) -> bool:
    if not definition.attributes.isdisjoint(SHARDING_NAMES):
        return True
    path = Path(definition.unit.path)
    return any(project.refers_to_sharding(path, name) for name in definition.names)
