"""Shell completion of words that click does not know: rules and report formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from fsdplint.report import REPORTS
from fsdplint.rules import RULES

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_selectors(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return what completes the last of the rules that commas separate."""
    before, comma, last = incomplete.rpartition(",")
    return _items((f"{before}{comma}{word}", help_) for word, help_ in _rules_from(last))


def complete_rule_or_path(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the rules for `explain RULE`, and paths after `--error`."""
    if context.params.get("error") is not None:
        return _items([(incomplete, None)], type_="file")
    return _items(_rules_from(incomplete))


def complete_format(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the formats of reports."""
    return _items((name, None) for name in REPORTS if name.startswith(incomplete))


def _items(words: Iterable[tuple[str, str | None]], type_: str = "plain") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # which no other run needs

    return [CompletionItem(word, type_, help_) for word, help_ in words]


def _rules_from(start: str) -> Iterator[tuple[str, str]]:
    """Yield each name and code that begins with ``start``, and what the rule finds."""
    for rule in RULES:
        if rule.name.startswith(start):
            yield rule.name, rule.summary
    for rule in RULES:
        if rule.code.startswith(start.upper()):
            yield rule.code, f"{rule.name}: {rule.summary}"
