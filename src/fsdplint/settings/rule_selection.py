"""Resolve selectors to rules: a name, a code, a code prefix, or ALL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fsdplint.finding import Severity
from fsdplint.rule import Rule
from fsdplint.rules import RULES
from fsdplint.suggest import suggest


class UnknownRuleError(ValueError):
    """A selector that selects no rule; the message is one line and suggests the nearest."""


# A file that does not parse was not checked, so selecting other rules must not hide it; only
# ignoring this one does.
ALWAYS_SELECTED = frozenset({"invalid-syntax"})


@dataclass(frozen=True, slots=True)
class OptIn:
    """The kinds of rules that ALL and prefixes select, too; names and codes always select.

    Attributes:
        preview: preview rules.
        pedantic: rules whose findings are notes.
    """

    preview: bool = False
    pedantic: bool = False

    def __or__(self, other: OptIn) -> OptIn:
        """Return the kinds of either."""
        return OptIn(self.preview or other.preview, self.pedantic or other.pedantic)

    def missing(self, rule: Rule) -> str:
        """Return the option that ``rule`` is off without, "" if it is on."""
        if rule.preview and not self.preview:
            return "preview"
        return "pedantic" if rule.severity is Severity.NOTE and not self.pedantic else ""


EVERYTHING = OptIn(preview=True, pedantic=True)


def resolve(selectors: Iterable[str], opt_in: OptIn = EVERYTHING) -> frozenset[str]:
    """Return the names of the rules that ``selectors`` select.

    Raises:
        UnknownRuleError: a selector selects none.
    """
    return frozenset(name for selector in selectors for name in _names(selector, opt_in))


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


def _names(selector: str, opt_in: OptIn) -> list[str]:
    code = selector.upper()
    selected = [rule for rule in RULES if code == "ALL" or _is_prefix(code, rule.code)]
    if not selected:
        return [find(selector)]
    names = [rule.name for rule in selected if code == rule.code or not opt_in.missing(rule)]
    if not names:
        needed = " and ".join(f"--{name}" for name in _all_missing(selected, opt_in))
        raise UnknownRuleError(f"{selector!r} selects only rules that need {needed}")
    return names


def _all_missing(rules: Iterable[Rule], opt_in: OptIn) -> list[str]:
    return sorted({opt_in.missing(rule) for rule in rules})


def _is_prefix(selector: str, code: str) -> bool:
    # Not shorter than the letters: a lone "F" is another tool's prefix.
    return code.startswith(selector) and len(selector) >= len(code.rstrip("0123456789"))
