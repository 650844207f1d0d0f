"""Findings in the Reviewdog Diagnostic Format, with fixes as suggestions.

Columns count bytes of UTF-8 from 1, and ends are exclusive. Every suggestion is offered by itself,
so a fix is one suggestion that replaces all from its first edit to its last; a fix in other files
is none.

Source: https://github.com/reviewdog/reviewdog/tree/master/proto/rdf
"""

from __future__ import annotations

import json

from fsdplint.finding import Finding, Fix, Severity, Span
from fsdplint.fixes.edits import apply
from fsdplint.outcome import Outcome
from fsdplint.report.places import located, relative
from fsdplint.report.style import Style

_SEVERITIES = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.NOTE: "INFO"}


def rdjson(outcome: Outcome, style: Style) -> str:  # noqa: ARG001 - a Report
    """A DiagnosticResult of findings and of what was not checked."""
    failures = [
        {
            "message": f"not checked: {failure.reason}",
            "location": {"path": relative(outcome, failure.path)},
            "severity": "ERROR",
        }
        for failure in outcome.failures
    ]
    found = [_finding(outcome, finding) for finding in outcome.findings]
    document = {"source": {"name": "fsdplint"}, "diagnostics": [*found, *failures]}
    return json.dumps(document, indent=2) + "\n"


def _finding(outcome: Outcome, finding: Finding) -> dict[str, object]:
    location: dict[str, object] = {"path": relative(outcome, finding.span.path)}
    if not outcome.sources[finding.span.path].notebook:
        location["range"] = _range(outcome, finding.span)
    return {
        "message": "\n".join([f"{finding.rule}: {finding.message}", *_evidence(outcome, finding)]),
        "location": location,
        "severity": _SEVERITIES[finding.severity],
        "code": {"value": finding.code},
        "suggestions": _suggestions(outcome, finding.fix, finding.span.path) if finding.fix else [],
    }


def _evidence(outcome: Outcome, finding: Finding) -> list[str]:
    return [f"{located(outcome, each.span)}: {each.note}" for each in finding.evidence]


def _suggestions(outcome: Outcome, fix: Fix, path: str) -> list[dict[str, object]]:
    source = outcome.sources[path]
    if source.notebook or any(edit.span.path != path for edit in fix.edits):
        return []
    first = min(edit.span.start for edit in fix.edits)
    last = max(edit.span.end for edit in fix.edits)
    fixed = apply(source.text, fix.edits)
    text = fixed[first : len(fixed) - (len(source.text) - last)]
    return [{"range": _range(outcome, Span(path, first, last)), "text": text}]


def _range(outcome: Outcome, span: Span) -> dict[str, object]:
    return {
        "start": _position(outcome, span.path, span.start),
        "end": _position(outcome, span.path, span.end),
    }


def _position(outcome: Outcome, path: str, offset: int) -> dict[str, int]:
    source = outcome.sources[path]
    line, column = source.position(offset)
    before = source.text[offset - column + 1 : offset]
    return {"line": line, "column": len(before.encode()) + 1}
