"""Whether edits change the code they touch and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.finding import Edit
from fsdplint.source.syntax import Syntax, parse

_Place = tuple[type, int, int]

# These may get a statement more below their end, so what they hold is looked at one by one.
_BLOCKS = (
    cst.BaseSuite,
    cst.BaseCompoundStatement,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.MatchCase,
)


def intact(old: str, new: str, edits: Sequence[Edit]) -> bool:
    """Whether all that ``edits`` do not touch means in ``new`` what it means in ``old``.

    An edit may be right by itself and turn what stands beside it into something else: a string, an
    argument, another branch. A node that has the same text and the same kind is the same.

    Raises:
        InvalidSyntax: one of the texts is not Python.
        TooDemanding: one of the texts would take too much to be parsed.
    """
    before, after = parse(old), parse(new)
    known = {(type(node), *span) for node, span in after.spans.items()}
    moved = _Moved(sorted(edits))
    return all(place in known for place in _untouched(before, before.tree, moved))


class _Moved:
    """Where what stands in the old text stands in the new one."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.edits = edits

    def touch(self, start: int, end: int) -> bool:
        return any(e.span.start <= end and start <= e.span.end for e in self.edits)

    def shift(self, offset: int) -> int:
        above = (e for e in self.edits if e.span.end <= offset)
        return sum(len(e.text) - (e.span.end - e.span.start) for e in above)


def _untouched(syntax: Syntax, node: cst.CSTNode, moved: _Moved) -> Iterator[_Place]:
    """The largest nodes without an edit in or at them, where the new text must have them."""
    start, end = syntax.spans.get(node, (0, 0))
    if start < end and not isinstance(node, _BLOCKS) and not moved.touch(start, end):
        shift = moved.shift(start)
        yield type(node), start + shift, end + shift
        return
    for child in node.children:
        yield from _untouched(syntax, child, moved)
