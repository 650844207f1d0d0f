"""Which function or class a place is in."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Scope:
    """A definition, from its 1-based ``first`` line to its ``last``.

    Attributes:
        name: with those of the definitions around it, e.g. "Trainer.fit".
        kind: SARIF's word for it: "type", "member" or "function".
    """

    first: int
    last: int
    name: str
    kind: str


class Scopes:
    """The definitions of a text; none in one that this Python does not parse."""

    def __init__(self, text: str) -> None:
        self.scopes = list(_scopes(text))

    def around(self, line: int) -> Scope | None:
        """The innermost definition around a 1-based ``line``."""
        holding = [scope for scope in self.scopes if scope.first <= line <= scope.last]
        return max(holding, key=lambda scope: scope.first, default=None)


def _scopes(text: str) -> Iterator[Scope]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    inside: list[tuple[ast.AST, str, bool]] = [(tree, "", False)]
    while inside:
        node, prefix, in_class = inside.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _DEFINITIONS):
                is_class = isinstance(child, ast.ClassDef)
                kind = "type" if is_class else "member" if in_class else "function"
                last = child.end_lineno or child.lineno
                yield Scope(child.lineno, last, prefix + child.name, kind)
                inside.append((child, f"{prefix}{child.name}.", is_class))
            elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                inside.append((child, prefix, in_class))
