"""Statements that only rank 0 runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.step import Change

_PLAIN = (
    *(ir.Name, ir.Attribute, ir.Constant, ir.Call, ir.Subscript),
    *(ir.Compare, ir.BinOp, ir.Not),
)


def on_rank_zero(code: Code, group: Sequence[ir.Stmt], what: str) -> Change:
    """Put statements that follow each other under a test of the rank, their own if they have one.

    Raises:
        NoFixError: the file uses `dist` for something else.
    """
    imports = Imports(code, group[0])
    test = f"{imports.module(DISTRIBUTED, 'dist')}.get_rank() == 0"
    edits = tuple(_narrowed(code, group, test) or _indented(code, group, test))
    return Change(code.span(group[0]), what, edits, (imports,))


def _narrowed(code: Code, group: Sequence[ir.Stmt], test: str) -> list[Edit]:
    """Return the edit of the test of an if statement that does nothing else."""
    owner = code.block(group[0]).owner
    whole = isinstance(owner, ir.If) and list(owner.body) == list(group) and not owner.orelse
    if not isinstance(owner, ir.If) or not whole or code.breaks(owner.test.start, owner.test.end):
        return []
    text = code.slice(owner.test)
    plain = isinstance(owner.test, _PLAIN) or (
        isinstance(owner.test, ir.BoolOp) and owner.test.op == "and"
    )
    left = text if plain else f"({text})"
    return [code.edit(owner.test.start, owner.test.end, f"{left} and {test}")]


def _indented(code: Code, group: Sequence[ir.Stmt], test: str) -> Iterator[Edit]:
    start = code.line_start(group[0].start)
    lines = list(code.code_lines(start, code.after(group[-1])))
    yield code.insert_lines(start, f"{code.indentation(group[0])}if {test}:{code.newline}")
    for at in lines:
        yield code.edit(at, at, code.unit)
