"""Names of libraries that a file imports from another file of the project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fsdplint.engine.project.project import Project
from fsdplint.knowledge.names import canonical

# Files that a name is passed on through.
_MOST_FILES = 5


def origin(project: Project, path: Path, names: Sequence[str], depth: int = 0) -> str:
    """Return the canonical name that a dotted name has by the imports of a project, or ""."""
    if depth == _MOST_FILES or not names:
        return ""
    for module, level, member in _origins(project, path, names[0]):
        parts = [*([member] if member else []), *names[1:]]
        file = project.find(module, level, path.parent)
        if file is None:
            return "" if level or not module else canonical(".".join((module, *parts)))
        found = origin(project, file, parts, depth + 1)
        while not found and len(parts) > 1:  # a module of a package
            module = f"{module}.{parts.pop(0)}".lstrip(".")
            file = project.find(module, level, path.parent)
            found = origin(project, file, parts, depth + 1) if file else ""
        if found:
            return found
    return ""


def _origins(project: Project, path: Path, name: str) -> Iterator[tuple[str, int, str | None]]:
    """Yield where a name may be imported from, of libraries only by its name."""
    imports = project.imports(path)
    if name in imports.bindings:
        yield imports.bindings[name]
        return
    for module, level in imports.stars:
        if project.find(module, level, path.parent) is not None:
            yield module, level, name
