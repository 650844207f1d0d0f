"""Outside `verify`, nothing imports, evaluates or unpickles what the user has written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fsdplint

SOURCE = Path(fsdplint.__file__).parent
RUNNING = frozenset({"eval", "exec", "__import__", "import_module", "run_path", "run_module"})
MODULES = frozenset(
    {
        "dill",
        "importlib",
        "imp",
        "marshal",
        "pickle",
        "runpy",
        "shelve",
        "subprocess",
        "torch",
        "yaml",
    }
)


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [(node.module or "").split(".")[0]]
    return []


def called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr if function.attr in RUNNING - {"eval", "exec"} else ""
    return function.id if isinstance(function, ast.Name) else ""


def offences(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        yield from (name for name in imported(node) if name in MODULES)
        if called(node) in RUNNING:
            yield called(node)


def test_the_search_sees_what_would_run() -> None:
    text = "import pickle\nfrom importlib import x\neval(a)\nb.import_module(a)\nmodel.eval()\n"
    assert sorted(offences(text)) == ["eval", "import_module", "importlib", "pickle"]


def test_nothing_runs_outside_verify() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), name)
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith("verify/")
        for name in offences(path.read_text("utf-8"))
    ]
    assert found == []
