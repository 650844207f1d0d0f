"""What a star import of a file may bring, so that no file is imported that brings nothing."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine.project.exports import Exports, exports, names_brought
from fsdplint.engine.project.project import Project


def may_bring(project: Project, path: Path, name: str) -> bool:
    """True if a star import of a file may bring a name."""
    if path not in project.brought:
        names = set[str]()
        for each in _with_stars(project, path):
            names |= _exports(project, each).names
            for module, level in _stars(project, each):
                if project.find(module, level, each.parent) is None:
                    names |= names_brought(module, level)
        project.brought[path] = frozenset(name for name in names if not name.startswith("_"))
    return name in project.brought[path]


def _with_stars(project: Project, path: Path) -> list[Path]:
    """Return a file and those that it imports with a star, transitively."""
    found = [path]
    for each in found:
        files = (project.find(*star, each.parent) for star in _stars(project, each))
        found += [file for file in dict.fromkeys(files) if file is not None and file not in found]
    return found


def _stars(project: Project, path: Path) -> tuple[tuple[str, int], ...]:
    return () if _exports(project, path).complete else project.imports(path).stars


def _exports(project: Project, path: Path) -> Exports:
    if path not in project.exports:
        project.exports[path] = exports(project.read(path) or "")
    return project.exports[path]
