"""The blocks that statements stand in, and what their order in these means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.engine.frontend.syntax import Syntax
from fsdplint.fixes.moved import Place

_ENDS = (cst.Return, cst.Raise, cst.Break, cst.Continue)
_PARTS = (
    cst.BaseSuite,
    cst.BaseCompoundStatement,
    cst.SimpleStatementLine,
    cst.BaseSmallStatement,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.MatchCase,
)


def homes(syntax: Syntax) -> dict[Place, tuple[Place, ...]]:
    """By each simple statement the heads of the blocks it stands in, the outermost first."""
    return dict(_homes(syntax, syntax.tree, ()))


def _homes(
    syntax: Syntax, node: cst.CSTNode, blocks: tuple[Place, ...]
) -> Iterator[tuple[Place, tuple[Place, ...]]]:
    for child in node.children:
        if not isinstance(child, _PARTS):
            continue
        if isinstance(child, (cst.SimpleStatementLine, cst.BaseSmallStatement)):
            yield _place(syntax, child), blocks
        inside = getattr(child, "body", None)
        if isinstance(inside, cst.BaseSuite):
            start, _ = syntax.spans[child]
            head = (type(child), start, syntax.spans[inside][0])
            yield from _homes(syntax, child, (*blocks, head))
        else:
            yield from _homes(syntax, child, blocks)


def docstrings(syntax: Syntax) -> int:
    """How many modules, classes and functions have one."""
    return sum(each.get_docstring(clean=False) is not None for each in _holders(syntax.tree))


def _holders(node: cst.CSTNode) -> Iterator[cst.Module | cst.FunctionDef | cst.ClassDef]:
    if isinstance(node, (cst.Module, cst.FunctionDef, cst.ClassDef)):
        yield node
    for child in node.children:
        if isinstance(child, _PARTS):
            yield from _holders(child)


def dead(syntax: Syntax) -> int:
    """How many statements stand below one that ends their block."""
    return sum(map(_dead, _bodies(syntax.tree)))


def _bodies(node: cst.CSTNode) -> Iterator[Sequence[cst.CSTNode]]:
    if isinstance(node, (cst.Module, cst.IndentedBlock)):
        yield node.body
    for child in node.children:
        if isinstance(child, _PARTS):
            yield from _bodies(child)


def _dead(body: Sequence[cst.CSTNode]) -> int:
    for index, line in enumerate(body):
        last = line.body[-1] if isinstance(line, cst.SimpleStatementLine) else None
        if isinstance(last, _ENDS):
            return len(body) - index - 1
    return 0


def _place(syntax: Syntax, node: cst.CSTNode) -> Place:
    return (type(node), *syntax.spans[node])
