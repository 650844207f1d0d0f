"""Names that an edit takes from the scope they meant."""

from __future__ import annotations

import builtins
import symtable
import warnings
from collections.abc import Iterator


def captures(old: str, new: str) -> bool:
    """Whether a name that a scope of ``old`` had from outside is its own, or another's, in ``new``.

    What this Python does not take for its own, as a newer one's syntax, is not looked at.
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
    """The scopes that have a name, by that and those around, if it is the only one of it."""
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
