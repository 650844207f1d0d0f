"""Check that edits change the code they touch and no other."""

from __future__ import annotations

import builtins
import symtable
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.engine.frontend.syntax import Syntax, parse
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit

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
    """Return whether the code that ``edits`` do not touch keeps its meaning in ``new``.

    An edit may be right by itself but turn the code beside it into something else: a string, an
    argument, a statement of another branch or of none, a name of another scope. A node is the same
    if its text and kind are, and a statement if it is in the same blocks.

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
    """Yield the largest nodes without an edit in or at them, where the new text must have them."""
    start, end = syntax.spans.get(node, (0, 0))
    if start < end and not isinstance(node, _BLOCKS):
        place = moved.place((type(node), start, end))
        if place is not None:
            yield place
            return
    for child in node.children:
        yield from _untouched(syntax, child, moved)


def _at_home(before: Syntax, after: Syntax, moved: Moved) -> bool:
    """Return whether each statement that is neither touched nor indented keeps its blocks.

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


# The blocks that statements are in


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
    """Return for each simple statement the heads of its blocks, the outermost first."""
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
    """Return how many modules, classes and functions have a docstring."""
    return sum(each.get_docstring(clean=False) is not None for each in _holders(syntax.tree))


def _holders(node: cst.CSTNode) -> Iterator[cst.Module | cst.FunctionDef | cst.ClassDef]:
    if isinstance(node, (cst.Module, cst.FunctionDef, cst.ClassDef)):
        yield node
    for child in node.children:
        if isinstance(child, _PARTS):
            yield from _holders(child)


def dead(syntax: Syntax) -> int:
    """Return how many statements follow one that ends their block."""
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


# Places before and after edits


# The kind of a node, and where it starts and ends.
Place = tuple[type, int, int]


@dataclass(frozen=True, slots=True)
class Moved:
    """Places in ``old``, by edits that are in order and apart, in ``new``."""

    old: str
    new: str
    edits: Sequence[Edit]

    def place(self, place: Place) -> Place | None:
        """Return the new place, None if an edit is in or at it."""
        kind, start, end = place
        if any(e.span.start <= end and start <= e.span.end for e in self.edits):
            return None
        shift = self._shift(start)
        return kind, start + shift, end + shift

    def head(self, head: Place) -> Place | None:
        """Return the new place of a block's head, None if an edit is inside it."""
        kind, start, end = head
        if any(e.span.start < end and start < e.span.end for e in self.edits):
            return None
        shift = self._shift(start)
        return kind, start + shift, end + shift

    def indented(self, place: Place) -> bool:
        """Return whether the indentation of a statement's line changes."""
        _, start, _ = place
        return _indentation(self.old, start) != _indentation(self.new, start + self._shift(start))

    def _shift(self, offset: int) -> int:
        above = (e for e in self.edits if e.span.end <= offset)
        return sum(len(e.text) - (e.span.end - e.span.start) for e in above)


def _indentation(text: str, offset: int) -> str:
    above = NEWLINE.split(text[:offset])[-1]
    return above[: len(above) - len(above.lstrip())]


# Names that an edit resolves to another scope


def captures(old: str, new: str) -> bool:
    """Return whether an outside name of a scope in ``old`` resolves elsewhere in ``new``.

    Text that this Python cannot compile, such as newer syntax, is not examined.
    """
    olds, news = _scopes(old), _scopes(new)
    if olds is None or news is None:
        return False
    pairs = ((scope, news[name]) for name, scope in olds.items() if name in news)
    return any(_captured(before, after) for before, after in pairs)


def _captured(before: symtable.SymbolTable, after: symtable.SymbolTable) -> bool:
    names = set(after.get_identifiers())
    for symbol in before.get_symbols():
        name = symbol.get_name()
        if name not in names:
            continue
        now = after.lookup(name)
        if before.get_type() == "module":
            if _is_builtin(symbol) and now.is_assigned():
                return True
        elif (_from_outside(symbol) and not _from_outside(now)) or (
            symbol.is_global() != now.is_global()
        ):
            return True
    return False


def _is_builtin(symbol: symtable.Symbol) -> bool:
    return hasattr(builtins, symbol.get_name()) and not (
        symbol.is_assigned() or symbol.is_imported()
    )


def _from_outside(symbol: symtable.Symbol) -> bool:
    return symbol.is_global() or symbol.is_free()


def _scopes(text: str) -> dict[tuple[str, ...], symtable.SymbolTable] | None:
    """Return the named scopes by their qualified names, without those that are not unique."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(text, "<fixed>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None
    found: dict[tuple[str, ...], symtable.SymbolTable] = {}
    twice = set()
    for name, scope in _named(table, ()):
        if name in found:
            twice.add(name)
        found[name] = scope
    return {name: scope for name, scope in found.items() if name not in twice}


def _named(
    table: symtable.SymbolTable, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], symtable.SymbolTable]]:
    yield above, table
    for child in table.get_children():
        if child.get_type() in ("function", "class") and child.get_name().isidentifier():
            yield from _named(child, (*above, child.get_name()))
