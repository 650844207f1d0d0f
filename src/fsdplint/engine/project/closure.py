"""The files that belong to a script: what it imports, directly or through other files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.project.project import Project


def import_closure(project: Project, script: Path) -> list[Path]:
    """``script`` and the project's files that running it imports, nearest first."""
    seen, queue = {script}, [script]
    for path in queue:
        for found in imported_files(project, path):
            if found not in seen:
                seen.add(found)
                queue.append(found)
    return queue


def imported_files(project: Project, path: Path) -> Iterator[Path]:
    """The project's files that a file imports, anywhere in it, told from its text."""
    for module, level in project.imports(path).modules:
        found = project.find(module, level, path.parent)
        if found is not None:
            yield found


def modules_meant(node: ir.Import | ir.ImportFrom) -> Iterator[tuple[list[str], int]]:
    """The modules each name of an import may mean, and how many dots they begin with.

    ``from a import b`` may mean the module ``a`` or ``a.b``.
    """
    if isinstance(node, ir.ImportFrom):
        inner = [f"{node.module}.{name}".lstrip(".") for name, _ in node.names]
        yield [node.module, *inner], node.level
    else:
        yield from (([name], 0) for name, _ in node.names)
