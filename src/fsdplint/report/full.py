"""Findings with the code that makes them true."""

from __future__ import annotations

from fsdplint.finding import Finding
from fsdplint.outcome import Outcome
from fsdplint.report.concise import headline
from fsdplint.report.frame import Mark, frames, gutter_width
from fsdplint.report.style import Style
from fsdplint.report.summary import summary


def full(outcome: Outcome, style: Style) -> str:
    """Each finding with its frames, its fix and its page, and the summary."""
    parts = ["\n".join(described(outcome, finding, style)) + "\n" for finding in outcome.findings]
    return "\n".join([*parts, summary(outcome)]) + "\n"


def described(outcome: Outcome, finding: Finding, style: Style) -> list[str]:
    """A finding with its frames, its fix and its page, line by line."""
    marks = [
        Mark(finding.span, finding.label, primary=True),
        *(Mark(evidence.span, evidence.note, primary=False) for evidence in finding.evidence),
    ]
    margin = " " * gutter_width(outcome, marks)
    notes = [f"{margin} {style('=', 'gutter')} {note}" for note in _notes(finding)]
    return [headline(outcome, finding, style), *frames(outcome, marks, style), *notes]


def _notes(finding: Finding) -> list[str]:
    page = f"page: fsdplint explain {finding.rule}"
    if finding.fix:
        return [f"fix ({finding.fix.safety.value}): {finding.fix.title}", page]
    return [f"no fix: {finding.fix_declined}", page] if finding.fix_declined else [page]
