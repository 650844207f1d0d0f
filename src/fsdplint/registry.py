"""All rules, imported when they are first asked for: what needs none starts without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.rule import Rule


def every_rule() -> tuple[Rule, ...]:
    """The rules in the order of their codes."""
    from fsdplint.rules import RULES

    return RULES
