"""Imports run downwards: no circle of modules, and no two packages that import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "fsdplint"


@cache
def _trees() -> dict[str, ast.Module]:
    """The modules of ours by name."""
    return {
        ".".join(("fsdplint", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): ast.parse(path.read_text("utf-8"))
        for path in PACKAGE.rglob("*.py")
    }


def _imported(nodes: Iterable[ast.AST], late: bool, ours: Set[str]) -> Iterator[str]:
    """The modules of ours that code imports when it runs; ``late``: in functions, too."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in ours else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not types and (late or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            yield from _imported(_within(node), late, ours)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a node and may hold statements: no expression does."""
    return (each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr))


def _graph(late: bool) -> dict[str, set[str]]:
    trees = _trees()
    return {
        name: ({*_imported(tree.body, late, trees.keys())} & trees.keys()) - {name}
        for name, tree in trees.items()
    }


def _package(module: str) -> str:
    """Its package, of which the engine has several; a loose module is one of its own."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[:1] == ["engine"] else "".join(parts[:1])


def test_modules_import_in_one_direction() -> None:
    TopologicalSorter(_graph(late=False)).prepare()


def test_packages_import_in_one_direction() -> None:
    packages: dict[str, set[str]] = {}
    for module, imported in _graph(late=True).items():
        own = _package(module)
        packages.setdefault(own, set()).update({*map(_package, imported)} - {own})
    TopologicalSorter(packages).prepare()
