"""A program as syntax trees whose nodes know where in the original they come from.

A rewriting moves nodes about; when the trees are printed, a finding is told by the node it is
reported at, and so by its place in the original program.
"""

from __future__ import annotations

import ast
import pickle
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

# The path, line and column of a node in the program that was rewritten.
Origin = tuple[str, int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Statements = list[ast.stmt]


@dataclass
class Trees:
    """The files of a program, each as a tree that a rewriting changes in place."""

    modules: dict[str, ast.Module]

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Trees:
        modules = {path: ast.parse(text) for path, text in files.items()}
        for path, module in modules.items():
            for node in ast.walk(module):
                if hasattr(node, "lineno"):
                    node.origin = (path, node.lineno, node.col_offset)  # type: ignore[attr-defined]  # for `origin`
        return cls(modules)

    def copied(self) -> Trees:
        return Trees(pickle.loads(pickle.dumps(self.modules, -1)))

    def printed(self) -> dict[str, str]:
        return {
            path: ast.unparse(ast.fix_missing_locations(module)) + "\n"
            for path, module in self.modules.items()
        }


@dataclass
class Printed:
    """One printed file beside the tree it was printed from."""

    text: str
    tree: ast.Module
    _by_span: dict[tuple[int, int], ast.AST] = field(default_factory=dict)

    def origin(self, start: int, end: int) -> Origin | None:
        """Where the code between two offsets comes from, None for code that is new."""
        node = self._spans.get((start, end)) or self._around(start, end)
        while node is not None:
            found = getattr(node, "origin", None)
            if found is not None:
                return found  # type: ignore[no-any-return]  # set by Trees.of
            node = self._parents.get(node)
        return None

    def _around(self, start: int, end: int) -> ast.AST | None:
        holding = [(b - a, node) for (a, b), node in self._spans.items() if a <= start and end <= b]
        return min(holding, key=lambda pair: pair[0])[1] if holding else None

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _spans(self) -> dict[tuple[int, int], ast.AST]:
        """The nodes of the printed tree by where their text begins and ends."""
        lines = [0]
        for line in self.text.encode().splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        found: dict[tuple[int, int], ast.AST] = {}
        again = ast.parse(self.text)
        for mine, printed in zip(_positioned(self.tree), _positioned(again), strict=True):
            start = lines[printed.lineno - 1] + printed.col_offset
            end = lines[printed.end_lineno - 1] + printed.end_col_offset
            found[self._characters(start), self._characters(end)] = mine  # the innermost
        return found

    @cached_property
    def _wide(self) -> list[int]:
        """The byte offsets behind each character that takes more than one, once per extra byte."""
        found, offset = [], 0
        for character in self.text:
            size = len(character.encode())
            offset += size
            found += [offset] * (size - 1)
        return found

    def _characters(self, offset: int) -> int:
        return offset - bisect_right(self._wide, offset)


def _positioned(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that stand for themselves in the text; an f-string's parts may be printed else."""
    queue: list[ast.AST] = [tree]
    for node in queue:
        if isinstance(node, ast.JoinedStr):
            yield node
            continue
        queue.extend(ast.iter_child_nodes(node))
        if isinstance(node, (ast.stmt, ast.expr, ast.alias, ast.keyword, ast.arg)):
            yield node


def blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, Statements]]:
    """Every list of statements, with the node it belongs to."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements:
                yield node, statements


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
