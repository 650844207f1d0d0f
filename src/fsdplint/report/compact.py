"""Findings as short JSON, for coding agents and other readers with little room.

The document is an object: ``version`` (1; it increases when a member is removed or changes its
meaning, not when one is added), ``summary`` (the last line of the text reports), ``findings``,
``failures`` and ``partly`` (lines on what could not be checked, and on where the analysis stopped
early). Every finding is on a line of its own.

A finding has ``rule``, ``severity`` (error, warning or note), ``at`` (``path:line:column``),
``message``, ``evidence`` (a list of ``path:line:column: note``), ``fix`` (null, or ``title`` and
``safety``) and ``fix_declined`` (why there is no fix, or null). In a notebook, a place is
``path:cell N:line:column``.
"""

from __future__ import annotations

import json

from fsdplint.finding import Finding
from fsdplint.outcome import Outcome
from fsdplint.report.places import early_stop_lines, failure_line, located
from fsdplint.report.style import Style
from fsdplint.report.text import summary


def compact(outcome: Outcome, _: Style) -> str:
    """Return the document that the module describes."""
    findings = ",".join(f"\n{json.dumps(_finding(outcome, found))}" for found in outcome.findings)
    head = json.dumps({"version": 1, "summary": summary(outcome)})
    failures = [failure_line(outcome, failure) for failure in outcome.failures]
    tail = json.dumps({"failures": failures, "partly": [*early_stop_lines(outcome)]})
    return f'{head[:-1]}, "findings": [{findings}], {tail[1:]}\n'


def _finding(outcome: Outcome, finding: Finding) -> dict[str, object]:
    fix = finding.fix
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "at": located(outcome, finding.span),
        "message": _folded(finding.message),
        "evidence": [
            f"{located(outcome, each.span)}: {_folded(each.note)}" for each in finding.evidence
        ],
        "fix": {"title": fix.title, "safety": fix.safety.value} if fix else None,
        "fix_declined": finding.fix_declined or None,
    }


def _folded(text: str) -> str:
    """Return ``text``, which may quote several lines of code, as one line."""
    return " ".join(text.split())
