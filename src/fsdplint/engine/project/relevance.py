"""Which files take part in sharding, found without parsing any.

A program that shards has a file with the name of a sharding call, and its other files are reached
from there: what such a file imports is loaded when it runs, and what makes it run imports it, be it
through other files. An import spells the name of the file that it refers to, so a file without the
name of any file found so far adds nothing and is not looked at.

So the scan loses no finding: rules report on paths that shard, and no path through other files
does. `tests/fuzz/test_prefilter.py` compares random programs with all of their files. Only if more
than ``_MAX_IMPORTERS`` files import those that shard are files left out by the names they import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.problem import is_python
from fsdplint.engine.project.exports import names_brought
from fsdplint.engine.project.imports import spelled
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.reachability import mark_reachability
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.finding import TOP_LEVEL
from fsdplint.knowledge.calls import SHARDING_NAMES

# Up to so many importers are all taken; of more, those that name what they import.
_MAX_IMPORTERS = 60

_RELATIVE = ("from .", "from  ", "from\t")

Files = Mapping[Path, bool]  # whether each may hold a sharding call
Graph = Mapping[Path, list[Path]]


def related_units(
    project: Project, files: Iterable[Path], focus: Collection[Path] | None = None
) -> list[Unit]:
    """Return the units that take part in sharding, in file order.

    These are the files that contain a sharding call and those that import them, through any number
    of files; if that is a large part of a large project, only those that name what they import.

    Args:
        focus: if given, only the programs that these files are part of are wanted: what they
            import, what imports them, and what that imports.
    """
    every: Files = {
        path: project.mentions_sharding(text)
        for path in files
        if (text := "" if project.is_plain(path) else project.read(path)) is not None
    }
    if focus is not None and not every.keys() <= set(focus):
        every = programs(project, every, focus)
    strict = [path for path, shards in every.items() if shards]
    importers = _importers(project, every, strict)
    if len(importers) > _MAX_IMPORTERS:
        wanted = frozenset(focus or ())  # first, so that a budget is not spent on others
        others = [path for path in every if path not in strict]
        importers = _naming(project, strict, sorted(others, key=lambda p: p not in wanted))
    chosen = {*strict, *importers}
    units = [unit for path in every if path in chosen and (unit := project.sketch(path))]
    mark_reachability(project, units)
    for path in strict:
        if not is_python(project.read(path) or ""):
            project.unit(path)  # which records the error
    return units


def programs(project: Project, every: Files, focus: Collection[Path]) -> Files:
    """Return the files of the programs that those in ``focus`` are part of."""
    graph = {path: imported_files(project, path) for path in every}
    users: dict[Path, list[Path]] = defaultdict(list)
    for path, targets in graph.items():
        for target in targets:
            users[target].append(path)
    program = _reachable(_reachable(focus, users), graph)
    return {path: shards for path, shards in every.items() if path in program}


def imported_files(project: Project, path: Path) -> list[Path]:
    """Return the project's files that a file imports, anywhere in it, as far as its text says."""
    modules = project.imports(path).modules
    found = (project.find(module, level, path.parent) for module, level in modules)
    return [target for target in found if target is not None]


def _reachable(start: Iterable[Path], graph: Graph) -> set[Path]:
    """Return ``start`` and everything that can be reached from it."""
    queue = list(start)
    seen = set(queue)
    for current in queue:
        fresh = set(graph.get(current, ())) - seen
        seen |= fresh
        queue.extend(fresh)
    return seen


def _importers(project: Project, every: Collection[Path], strict: Collection[Path]) -> list[Path]:
    """Return the files that import ``strict``, through others too; at most one over the limit."""
    found: dict[Path, None] = {}
    fresh = list(strict)
    while fresh and len(found) <= _MAX_IMPORTERS:
        targets, words = frozenset(fresh), _words(fresh)
        fresh = []
        for path in every:
            if path in found or path in strict or not _has_one(project, path, words):
                continue
            if not targets.isdisjoint(imported_files(project, path)):
                found[path] = None
                fresh.append(path)
            if len(found) > _MAX_IMPORTERS:
                break
    return list(found)


def _has_one(project: Project, path: Path, words: Collection[str]) -> bool:
    text = project.read(path) or ""
    return any(word in text for word in words)


def _words(paths: Iterable[Path]) -> frozenset[str]:
    """Return the words, one of which any import of one of the files contains."""
    return frozenset(word for path in paths for word in _import_words(path))


def _import_words(path: Path) -> tuple[str, ...]:
    if path.stem != "__init__":
        return (path.stem,)
    return (path.parent.name, *_RELATIVE)  # the files of a package also mean it by dots alone


def _naming(project: Project, strict: list[Path], others: list[Path]) -> list[Path]:
    """Return those of ``others`` that import a definition which can reach a sharding call.

    Each round may make more definitions reach sharding, and more files carriers of their names, so
    it repeats until no file is added. The budget for users bounds it.
    """
    units = [unit for path in strict if (unit := project.sketch(path))]
    taken = {path: _imported_names(project, path) for path in others}
    chosen: dict[Path, None] = {}
    while True:
        mark_reachability(project, units)
        carriers = _carriers(project)
        left = (path for path in others if path not in chosen)
        every = [path for path in left if taken[path].has_one_of(project, path, carriers)]
        fresh = every[: project.budget.users - len(chosen)]
        for path in every[len(fresh) :]:
            reason = f"more than {project.budget.users} files use code that shards"
            project.stop_early(path.as_posix(), TOP_LEVEL, reason)
        added = [unit for path in fresh if (unit := project.sketch(path))]
        if not added:
            return list(chosen)
        chosen.update(dict.fromkeys(fresh))
        units.extend(added)


# The names by which the definitions of a file that can reach a sharding call can be imported.
Carriers = Mapping[Path, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Imported:
    """The project's names that a file imports.

    Attributes:
        members: names, each with the file that it is from.
        files: files that are imported as modules, or with a star.
    """

    members: frozenset[tuple[Path, str]]
    files: frozenset[Path]

    def has_one_of(self, project: Project, path: Path, carriers: Carriers) -> bool:
        """True if the file at ``path``, whose imports these are, uses a name of a carrier."""
        if any(name in carriers.get(file, ()) for file, name in self.members):
            return True
        names = {name for file in self.files for name in carriers.get(file, ())}
        return bool(names) and _has_one(project, path, names)


def _carriers(project: Project) -> Carriers:
    """Return the files so far that define or re-export something that may shard, with its names."""
    found: dict[Path, frozenset[str]] = {}
    for unit in filter(None, project.units.values()):
        own = {definition.name for definition in unit.definitions.values() if definition.may_shard}
        passed_on = {
            name
            for name in unit.bindings
            if (target := project.loaded_definition(unit, name)) is not None and target.may_shard
        }
        passed_on |= project.sharding_names(Path(unit.path))
        if own or passed_on:
            found[Path(unit.path)] = frozenset(own | passed_on)
    return found


def _imported_names(project: Project, path: Path) -> _Imported:
    """Return the project's files and members that a file imports."""
    imports, folder = project.imports(path), path.parent
    members = {
        (file, member)
        for module, level, member in imports.bindings.values()
        if member is not None and (file := project.find(module, level, folder)) is not None
    }
    named = [
        (f"{module}.{member}".lstrip(".") if member else module, level)
        for module, level, member in imports.bindings.values()
    ]
    plain = [(module, level) for module, level in imports.modules if not level and "." in module]
    every = dict.fromkeys([*named, *plain, *imports.stars])
    files = {project.find(module, level, folder) for module, level in every}
    return _Imported(frozenset(members), frozenset(file for file in files if file is not None))


# The files of one script


def import_closure(project: Project, script: Path) -> list[Path]:
    """Return ``script`` and the project's files that it imports, nearest first."""
    seen, queue = {script}, [script]
    for path in queue:
        for found in imported_files(project, path):
            if found not in seen:
                seen.add(found)
                queue.append(found)
    return queue


def modules_meant(node: ir.Import | ir.ImportFrom) -> Iterator[tuple[list[str], int]]:
    """Yield the modules that each name of an import may refer to, and its leading dots.

    ``from a import b`` may refer to the module ``a`` or ``a.b``.
    """
    if isinstance(node, ir.ImportFrom):
        inner = [f"{node.module}.{name}".lstrip(".") for name, _ in node.names]
        yield [node.module, *inner], node.level
    else:
        yield from (([name], 0) for name, _ in node.names)


# Sharding calls that a file imports from code that is not there


def note_unknown_origins(project: Project, units: Iterable[Unit]) -> None:
    """Record an early stop for sharding calls that are imported from missing code."""
    for unit in units:
        for module, level, member in unit.bindings.values():
            if member in SHARDING_NAMES and project.lacks(module, level, unit):
                reason = f"the import of `{spelled(module, level)}` cannot be resolved"
                project.stop_early(unit.path, TOP_LEVEL, reason)
        for name in sorted(_of_unknown_origin(unit) - project.sharding_names(Path(unit.path))):
            for module, level in unit.imports.stars:
                if not project.find(module, level, unit) and not names_brought(module, level):
                    star = f"`from {spelled(module, level)} import *`"
                    reason = f"`{name}` may come from {star}, which cannot be resolved"
                    project.stop_early(unit.path, TOP_LEVEL, reason)


def _of_unknown_origin(unit: Unit) -> frozenset[str]:
    """Return the names of sharding calls that a file uses and nothing in it binds."""
    used = frozenset().union(*(definition.names for definition in _definitions(unit)))
    return SHARDING_NAMES & used - unit.bindings.keys() - unit.definitions.keys()


def _definitions(unit: Unit) -> Iterator[Definition]:
    yield unit.top
    yield from unit.definitions.values()
