"""Whether edits change the code they touch and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.engine.frontend.syntax import Syntax, parse
from fsdplint.finding import Edit
from fsdplint.fixes.captures import captures
from fsdplint.fixes.homes import dead, docstrings, homes
from fsdplint.fixes.moved import Moved, Place

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
    argument, a statement of another branch or of none, a name of another scope. A node that has the
    same text and the same kind is the same, and a statement that stands in the same blocks.

    Raises:
        InvalidSyntax: one of the texts is not Python.
        TooDemanding: one of the texts would take too much to be parsed.
    """
    before, after = parse(old), parse(new)
    moved = Moved(old, new, edits)
    known = {(type(node), *span) for node, span in after.spans.items()}
    return (
        all(place in known for place in _untouched(before, before.tree, moved))
        and _at_home(before, after, moved)
        and docstrings(after) >= docstrings(before)
        and dead(after) <= dead(before)
        and not captures(old, new)
    )


def _untouched(syntax: Syntax, node: cst.CSTNode, moved: Moved) -> Iterator[Place]:
    """The largest nodes without an edit in or at them, where the new text must have them."""
    start, end = syntax.spans.get(node, (0, 0))
    if start < end and not isinstance(node, _BLOCKS):
        place = moved.place((type(node), start, end))
        if place is not None:
            yield place
            return
    for child in node.children:
        yield from _untouched(syntax, child, moved)


def _at_home(before: Syntax, after: Syntax, moved: Moved) -> bool:
    """Whether each statement that is not touched, nor indented, stands in the blocks it stood in.

    Only the place of a block whose head is touched may another one take.
    """
    olds, news = homes(before), homes(after)
    heads = {head for blocks in olds.values() for head in blocks}
    moves = {head: moved.head(head) for head in heads}
    kept = {place for place in moves.values() if place is not None}
    for old, blocks in olds.items():
        place = moved.place(old)
        if place is None or moved.indented(old):
            continue
        found = news.get(place)
        wanted = [move for block in blocks if (move := moves[block]) is not None]
        if found is None or [block for block in found if block in kept] != wanted:
            return False
        if len(wanted) == len(blocks) != len(found):
            return False
    return True
