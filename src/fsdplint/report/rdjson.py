"""Findings in the Reviewdog Diagnostic Format, with fixes as suggestions.

Columns count bytes of UTF-8 from 1, and ends are exclusive. Every suggestion is offered by itself,
so a fix is one suggestion that replaces all from its first edit to its last; a fix in other files
is none. Ranges in a notebook are those of its JSON.

Source: https://github.com/reviewdog/reviewdog/tree/master/proto/rdf
"""

from __future__ import annotations

import json

from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding, Fix, Severity
from fsdplint.outcome import Outcome
from fsdplint.report.places import located, relative
from fsdplint.report.replacements import joined
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
    source = outcome.sources[finding.span.path]
    where = source.in_document(finding.span.start, finding.span.end)
    return {
        "message": "\n".join([f"{finding.rule}: {finding.message}", *_evidence(outcome, finding)]),
        "location": {
            "path": relative(outcome, finding.span.path),
            "range": _range(source.document, *where),
        },
        "severity": _SEVERITIES[finding.severity],
        "code": {"value": finding.code},
        "suggestions": _suggestions(source, finding.fix) if finding.fix else [],
    }


def _evidence(outcome: Outcome, finding: Finding) -> list[str]:
    return [f"{located(outcome, each.span)}: {each.note}" for each in finding.evidence]


def _suggestions(source: SourceFile, fix: Fix) -> list[dict[str, object]]:
    if any(edit.span.path != source.path for edit in fix.edits):
        return []
    start, end, text = joined(source, fix.edits)
    return [{"range": _range(source.document, start, end), "text": text}]


def _range(document: SourceFile, start: int, end: int) -> dict[str, object]:
    return {"start": _position(document, start), "end": _position(document, end)}


def _position(document: SourceFile, offset: int) -> dict[str, int]:
    line, column = document.position(offset)
    before = document.text[offset - column + 1 : offset]
    return {"line": line, "column": len(before.encode()) + 1}
