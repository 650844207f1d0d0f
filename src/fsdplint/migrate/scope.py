"""The files of a project that a migration reads and may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.check import around
from fsdplint.check_configs import candidates
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.relevance import imported_files, programs
from fsdplint.files.discover import discover, is_project, project_root
from fsdplint.files.file import absolute
from fsdplint.knowledge.frameworks import uses_launcher
from fsdplint.knowledge.lightning_settings import CLI
from fsdplint.migrate.step import Migration, MigrationError
from fsdplint.sources import Sources


@dataclass(frozen=True, slots=True)
class Scope:
    """The files of a project.

    Attributes:
        given: those that are to be migrated.
        every: all Python files.
        files: those that the migration may change.
        configs: config files and launch scripts, given ones and those that may launch the files.
        paths: those that the migration was asked for.
        shared: files with entries of the plan, so that the programs that use them are in it.
    """

    root: Path
    given: tuple[str, ...]
    every: tuple[str, ...]
    files: tuple[str, ...]
    configs: tuple[str, ...]
    paths: Sequence[str]
    shared: frozenset[str]


def scope_of(
    paths: Sequence[str], migration: Migration, shared: frozenset[str] = frozenset()
) -> Scope:
    """Return the files of the programs that have one of ``paths`` or of the ``shared`` files."""
    discovery = discover(list(map(Path, paths)))
    if discovery.failures:
        raise discovery.failures[0]
    code = tuple(map(absolute, discovery.files))
    configs = tuple(map(absolute, candidates(discovery.configs)))
    given = (*code, *configs)
    if not given:
        raise MigrationError(f"no Python file and no config file of FSDP in {', '.join(paths)}")
    roots = {project_root(Path(path)) for path in given}
    if len(roots) > 1:
        names = ", ".join(sorted(root.as_posix() for root in roots))
        raise MigrationError(
            f"these files are in several projects ({names}); migrate one at a time"
        )
    root, sources = roots.pop(), Sources()
    every = (*code, *around(root, code, sources.text))
    project = Project(root, sources.text)
    found = _closure(project, map(Path, code))
    if not migration.of_script:
        known = dict.fromkeys(map(Path, every), True)
        focus = dict.fromkeys(map(Path, (*code, *sorted(shared))))
        found = [*programs(project, known, list(focus)), *found]
    files = tuple(path.as_posix() for path in dict.fromkeys(found))
    texts = [sources.text(Path(path)) or "" for path in files]
    if is_project(root) and any(uses_launcher(text) or CLI in text for text in texts):
        configs += tuple(map(absolute, candidates(discover([root]).configs)))
    configs = tuple(dict.fromkeys(configs))
    return Scope(root, given, every, files, configs, paths, shared)


def _closure(project: Project, start: Iterable[Path]) -> list[Path]:
    found = list(start)
    for path in found:
        found += [each for each in imported_files(project, path) if each not in found]
    return found
