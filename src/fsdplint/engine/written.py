"""What a call says in so many words."""

from __future__ import annotations

from fsdplint.engine import ir


def argument(call: ir.Node, position: int, keyword: str) -> ir.Argument | None:
    """An argument as it is written in a call, if it is written there and none before is spread."""
    if not isinstance(call, ir.Call):
        return None
    named = next((each for each in call.args if each.keyword == keyword), None)
    plain = [each for each in call.args if each.keyword is None]
    before = plain[: position + 1]
    if named is not None or len(before) <= position or any(each.star for each in before):
        return named
    return before[position]
