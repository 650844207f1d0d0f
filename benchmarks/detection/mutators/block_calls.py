"""Where the model's code calls its blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.detection.module import Module
from benchmarks.detection.mutators.class_checks import Root


@dataclass(frozen=True, slots=True)
class BlockCall:
    """A call of a block in a loop through the container of ``root``, and the statement it is in."""

    module: Module
    call: ast.Call
    statement: ast.stmt


def block_calls(everything: list[Module], root: Root) -> list[BlockCall]:
    """The calls of the blocks themselves, in whichever method runs them."""
    return [found for module in everything for found in _in_module(module, root)]


def _in_module(module: Module, root: Root) -> Iterator[BlockCall]:
    for loop in ast.walk(module.tree):
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
            continue
        if root.container not in _attributes(loop.iter) or "self" not in ast.unparse(loop.iter):
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == loop.target.id:
                yield BlockCall(module, node, module.statement(node))


def _attributes(node: ast.expr) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
