"""Which rules are meant by what people type: names, codes, prefixes of codes, and ALL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Named(Protocol):
    """A rule, as far as selecting it goes."""

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> str: ...


class UnknownRuleError(ValueError):
    """A selector that means no rule; the message is one line and suggests the nearest."""


# A file that does not parse was not looked at, so choosing other rules must not hide that it was
# not; only ignoring this one does.
ALWAYS_SELECTED = frozenset({"invalid-syntax"})


def resolve(selectors: Iterable[str], rules: Sequence[Named]) -> frozenset[str]:
    """The names of the ``rules`` that any selector means.

    Raises:
        UnknownRuleError: a selector means none.
    """
    return frozenset(name for selector in selectors for name in _names(selector, rules))


def find(selector: str, rules: Sequence[Named]) -> str:
    """The name of the one rule called ``selector`` or with that code.

    Raises:
        UnknownRuleError: there is no such rule.
    """
    for rule in rules:
        if selector.lower() == rule.name or selector.upper() == rule.code:
            return rule.name
    raise UnknownRuleError(_unknown(selector, rules))


def suggest(word: str, known: Iterable[str]) -> str:
    """A question to end an error message with, or nothing if no known word is like ``word``."""
    from difflib import get_close_matches

    spellings = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spellings, n=1, cutoff=0.7)
    return f", did you mean {spellings[close[0]]!r}?" if close else ""


def _names(selector: str, rules: Sequence[Named]) -> list[str]:
    if selector.upper() == "ALL":
        return [rule.name for rule in rules]
    by_prefix = [rule.name for rule in rules if _is_prefix(selector.upper(), rule.code)]
    return by_prefix or [find(selector, rules)]


def _is_prefix(selector: str, code: str) -> bool:
    # Not shorter than the letters: a lone "F" is another tool's prefix.
    return code.startswith(selector) and len(selector) >= len(code.rstrip("0123456789"))


def _unknown(selector: str, rules: Sequence[Named]) -> str:
    known = [word for rule in rules for word in (rule.name, rule.code)]
    hint = suggest(selector, known) or "; `fsdplint rules` lists them"
    return f"unknown rule {selector!r}{hint}"
