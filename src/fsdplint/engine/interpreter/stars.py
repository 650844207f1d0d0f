"""What a star import of a file may bring, so that no file is imported that brings nothing."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine.project.exports import Exports, exports, names_brought
from fsdplint.engine.project.project import Project


def may_bring(project: Project, path: Path, name: str) -> bool:
    """True if a star import of a file may bring a name."""
    if path not in project.brought:
        names = set[str]()
        for each in project.with_star_imports(path):
            own = _exports(project, each)
            names |= own.names
            for module, level in () if own.complete else project.imports(each).stars:
                if project.find(module, level, each.parent) is None:
                    names |= names_brought(module, level)
        project.brought[path] = frozenset(name for name in names if not name.startswith("_"))
    return name in project.brought[path]


def _exports(project: Project, path: Path) -> Exports:
    if path not in project.exports:
        project.exports[path] = exports(project.read(path) or "")
    return project.exports[path]
