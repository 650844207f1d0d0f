"""Which rules are meant by what people type: names, codes, prefixes of codes, and ALL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fsdplint.suggest import suggest


class Named(Protocol):
    """A rule, as far as selecting it goes."""

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def preview(self) -> str: ...


class UnknownRuleError(ValueError):
    """A selector that means no rule; the message is one line and suggests the nearest."""


# A file that does not parse was not looked at, so choosing other rules must not hide that it was
# not; only ignoring this one does.
ALWAYS_SELECTED = frozenset({"invalid-syntax"})


def resolve(
    selectors: Iterable[str], rules: Sequence[Named], preview: bool = True
) -> frozenset[str]:
    """The names of the ``rules`` that any selector means.

    Args:
        preview: whether ALL and prefixes mean preview rules too; their names and codes always do.

    Raises:
        UnknownRuleError: a selector means none.
    """
    return frozenset(name for selector in selectors for name in _names(selector, rules, preview))


def find(selector: str, rules: Sequence[Named]) -> str:
    """The name of the one rule called ``selector`` or with that code.

    Raises:
        UnknownRuleError: there is no such rule.
    """
    for rule in rules:
        if selector.lower() == rule.name or selector.upper() == rule.code:
            return rule.name
    raise UnknownRuleError(_unknown(selector, rules))


def _names(selector: str, rules: Sequence[Named], preview: bool) -> list[str]:
    code = selector.upper()
    meant = [rule for rule in rules if code == "ALL" or _is_prefix(code, rule.code)]
    if not meant:
        return [find(selector, rules)]
    names = [rule.name for rule in meant if preview or not rule.preview or code == rule.code]
    if not names:
        raise UnknownRuleError(f"{selector!r} means only preview rules, and preview is off")
    return names


def _is_prefix(selector: str, code: str) -> bool:
    # Not shorter than the letters: a lone "F" is another tool's prefix.
    return code.startswith(selector) and len(selector) >= len(code.rstrip("0123456789"))


def _unknown(selector: str, rules: Sequence[Named]) -> str:
    known = [word for rule in rules for word in (rule.name, rule.code)]
    hint = suggest(selector, known) or "; `fsdplint rules` lists them"
    return f"unknown rule {selector!r}{hint}"
