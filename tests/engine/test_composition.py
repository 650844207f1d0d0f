"""How the interpreter is put together: tables over one state, no tower of classes, no circles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import fsdplint.engine.interpreter
from fsdplint.engine import ir
from fsdplint.engine.interpreter.semantics import SEMANTICS

PACKAGE = "fsdplint.engine.interpreter"
FOLDER = Path(fsdplint.engine.interpreter.__file__).parent
TREES = {
    ".".join((PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): (ast.parse(path.read_text(encoding="utf-8")))
    for path in FOLDER.rglob("*.py")
}


def test_every_kind_of_node_is_in_a_table() -> None:
    assert SEMANTICS.evaluate.keys() == set(get_args(ir.Expr))
    assert SEMANTICS.execute.keys() == set(get_args(ir.Stmt))


def test_no_class_inherits_from_one_that_inherits() -> None:
    classes = [
        node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    names = {node.name for node in classes}
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)} & names
        for node in classes
    }
    assert [name for name in names if any(bases[base] for base in bases[name])] == []


def test_imports_run_downwards() -> None:
    TopologicalSorter({name: _imported(tree) for name, tree in TREES.items()}).prepare()


def test_imports_stand_at_the_top() -> None:
    for name, tree in TREES.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = [node for function in functions for node in ast.walk(function)]
        assert not [n for n in inside if isinstance(n, (ast.Import, ast.ImportFrom))], name


def _imported(tree: ast.Module) -> set[str]:
    """The modules of the package that one imports."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = {f"{node.module}.{alias.name}" for alias in node.names} & TREES.keys()
            found |= whole or {node.module}
    return found & TREES.keys()
