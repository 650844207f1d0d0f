"""Fixes of lint rules as a step of a migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.migrate.step import Change, Context, Found, Step
from fsdplint.rules import RULES
from fsdplint.run_rules import judge


def fixes_of(name: str) -> Step:
    """Return a step that applies the fixes of the rule ``name``."""
    rule = next(rule for rule in RULES if rule.name == name)

    def step(context: Context) -> Iterator[Found]:
        for finding in judge(rule, context.program).findings:
            if finding.fix is not None and finding.span.path in context.files:
                yield Change(finding.span, finding.fix.title, finding.fix.edits)

    return step
