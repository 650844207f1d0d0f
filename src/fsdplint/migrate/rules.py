"""Steps that are made of others: of the fixes of a rule, or for the files that may change."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.finding import Finding
from fsdplint.migrate.step import Change, Context, Found, Step
from fsdplint.rules import RULES
from fsdplint.run_rules import judge


def fixes_of(name: str) -> Step:
    """Return a step that applies the fixes of the rule ``name``."""

    def step(context: Context) -> Iterator[Found]:
        for finding in findings_of(name, context):
            if finding.fix is not None:
                yield Change(finding.span, finding.fix.title, finding.fix.edits)

    return step


def findings_of(name: str, context: Context) -> Iterator[Finding]:
    """Yield the findings of the rule ``name`` in the files that may be changed."""
    rule = next(rule for rule in RULES if rule.name == name)
    for finding in judge(rule, context.program).findings:
        if finding.span.path in context.files:
            yield finding


def within(step: Step) -> Step:
    """Return ``step`` without what it finds in files that may not be changed.

    Traces lead through all files of the project, those of other programs among them.
    """

    def limited(context: Context) -> Iterator[Found]:
        for found in step(context):
            edits = found.edits if isinstance(found, Change) else ()
            paths = {found.span.path, *(edit.span.path for edit in edits)}
            if paths <= context.files:
                yield found

    return limited
