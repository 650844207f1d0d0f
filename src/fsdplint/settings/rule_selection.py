"""Resolve selectors to rules: a name, a code, a code prefix, or ALL."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.rules import RULES
from fsdplint.suggest import suggest


class UnknownRuleError(ValueError):
    """A selector that selects no rule; the message is one line and suggests the nearest."""


# A file that does not parse was not checked, so selecting other rules must not hide it; only
# ignoring this one does.
ALWAYS_SELECTED = frozenset({"invalid-syntax"})


def resolve(selectors: Iterable[str], preview: bool = True) -> frozenset[str]:
    """Return the names of the rules that ``selectors`` select.

    Args:
        preview: whether ALL and prefixes select preview rules, too; names and codes always do.

    Raises:
        UnknownRuleError: a selector selects none.
    """
    return frozenset(name for selector in selectors for name in _names(selector, preview))


def find(selector: str) -> str:
    """Return the name of the one rule that has the name or the code ``selector``.

    Raises:
        UnknownRuleError: there is no such rule.
    """
    for rule in RULES:
        if selector.lower() == rule.name or selector.upper() == rule.code:
            return rule.name
    known = [word for rule in RULES for word in (rule.name, rule.code)]
    hint = suggest(selector, known) or "; `fsdplint rules` lists them"
    raise UnknownRuleError(f"unknown rule {selector!r}{hint}")


def _names(selector: str, preview: bool) -> list[str]:
    code = selector.upper()
    selected = [rule for rule in RULES if code == "ALL" or _is_prefix(code, rule.code)]
    if not selected:
        return [find(selector)]
    names = [rule.name for rule in selected if preview or not rule.preview or code == rule.code]
    if not names:
        raise UnknownRuleError(f"{selector!r} selects only preview rules, and preview is off")
    return names


def _is_prefix(selector: str, code: str) -> bool:
    # Not shorter than the letters: a lone "F" is another tool's prefix.
    return code.startswith(selector) and len(selector) >= len(code.rstrip("0123456789"))
