"""What torch calls its things is written in `fsdplint.knowledge`, and there under one name."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import fsdplint

SOURCE = Path(fsdplint.__file__).parent
# The verifier imports torch itself.
_MAY_NAME = {"knowledge", "verify"}
_SYMBOL = re.compile(r"torch\.[a-z]")
READERS = {path.name for path in SOURCE.iterdir()} - _MAY_NAME
"""Files and packages that ask the knowledge."""


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """The strings of a module, without docstrings."""
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in alone:
            yield node


def symbols(source: str) -> list[str]:
    return [
        f"line {node.lineno}: {node.value}"
        for node in texts(ast.parse(source))
        if _SYMBOL.match(str(node.value))
    ]


def test_symbols_are_told_from_other_texts() -> None:
    source = '"""torch.nn is meant."""\nx = "torch.nn"\ny = f"torch.{x}", "see torch.nn", "torch"\n'
    assert symbols(source) == ["line 2: torch.nn"]
    assert symbols('x = f"torch.nn.{name}"') == ["line 1: torch.nn."]


def test_symbols_of_torch_come_from_the_knowledge() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] in READERS]
    assert len(paths) > len(READERS)
    found = {path: symbols(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: named for path, named in found.items() if named} == {}


def assigned(path: Path) -> Iterator[tuple[str, str]]:
    """The constants that a module of the knowledge itself defines as one string."""
    module = importlib.import_module(f"fsdplint.knowledge.{path.stem}")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            value = vars(module).get(target.id) if isinstance(target, ast.Name) else None
            if isinstance(target, ast.Name) and isinstance(value, str):
                yield value, f"{path.stem}.{target.id}"


def test_no_symbol_has_two_constants() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((SOURCE / "knowledge").glob("[a-z]*.py")):
        for value, name in assigned(path):
            found[value].append(name)
    assert "torch.device" in found
    assert [names for names in found.values() if len(names) > 1] == []
