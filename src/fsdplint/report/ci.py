"""Reports for GitHub (workflow commands), GitLab (Code Quality) and reviewdog (rdjson).

All of them show findings on the lines of a change, so a place in a notebook is that in its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding, Fix, Severity
from fsdplint.fingerprint import fingerprints
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.places import in_document, located, relative, shown
from fsdplint.report.replacements import joined
from fsdplint.report.style import Style
from fsdplint.urls import rule_url

_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_GITLAB = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}
_RDJSON = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.NOTE: "INFO"}
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = {**_MESSAGE, **str.maketrans({":": "%3A", ",": "%2C"})}


def github(outcome: Outcome, _: Style) -> str:
    """Return a workflow command for each finding and for each path that was not checked.

    GitHub shows ten errors, ten warnings and ten notices of a step; its log has all of them. In a
    notebook, the message names the cell.
    """
    commands = [_annotation(outcome, finding) for finding in outcome.findings]
    for failure in outcome.failures:
        title = {"file": printable(failure.path), "title": "fsdplint"}
        commands.append(
            _command("error", title, f"{shown(outcome, failure.path)}: {failure.reason}")
        )
    return "".join(f"{command}\n" for command in commands)


def _annotation(outcome: Outcome, finding: Finding) -> str:
    # The runner resolves an absolute path against the checkout, wherever this was run.
    properties = {"file": printable(finding.span.path), **_lines_and_columns(outcome, finding)}
    properties["title"] = f"{finding.code} {finding.rule}"
    where = located(outcome, finding.span)
    message = "\n".join([f"{where}: {finding.message}", *_evidence(outcome, finding)])
    return _command(_GITHUB[finding.severity], properties, message)


def _lines_and_columns(outcome: Outcome, finding: Finding) -> dict[str, str]:
    """Return the properties of a place; the runner accepts columns only on a single line."""
    (line, column), (last, end) = in_document(outcome, finding.span)
    lines = {"line": str(line), "endLine": str(last)}
    return lines if line != last else {**lines, "col": str(column), "endColumn": str(end)}


def _command(name: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{key}={value.translate(_PROPERTY)}" for key, value in properties.items())
    return f"::{name} {given}::{message.translate(_MESSAGE)}"


def _evidence(outcome: Outcome, finding: Finding) -> Iterator[str]:
    return (f"{located(outcome, each.span)}: {each.note}" for each in finding.evidence)


def gitlab(outcome: Outcome, _: Style) -> str:
    """Return a Code Quality list of the findings and of what was not checked.

    Paths are relative to the working directory, which should be the repository's. GitLab merges
    entries with equal fingerprints, and hides those that the target branch has, too.
    """
    found = [
        {
            "description": f"{finding.code} {finding.rule}: {finding.message}",
            "check_name": finding.rule,
            "fingerprint": fingerprint,
            "severity": _GITLAB[finding.severity],
            "location": _lines(outcome, finding),
        }
        for finding, fingerprint in fingerprints(outcome).items()
    ]
    reasons = dict.fromkeys((failure.path, failure.reason) for failure in outcome.failures)
    failed = [_unchecked(relative(outcome, path), reason) for path, reason in reasons]
    return json.dumps([*found, *failed], indent=2) + "\n"


def _lines(outcome: Outcome, finding: Finding) -> dict[str, object]:
    (first, _), (last, _) = in_document(outcome, finding.span)
    path = relative(outcome, finding.span.path)
    return {"path": path, "lines": {"begin": first, "end": last}}


def _unchecked(path: str, reason: str) -> dict[str, object]:
    return {
        "description": f"not checked: {reason}",
        "check_name": "not-checked",
        "fingerprint": sha256(f"{path}\0{reason}".encode()).hexdigest()[:32],
        "severity": "blocker",
        "location": {"path": path, "lines": {"begin": 1, "end": 1}},
    }


def rdjson(outcome: Outcome, _: Style) -> str:
    """Return the findings and what was not checked in the Reviewdog Diagnostic Format.

    Columns count bytes of UTF-8 from 1, and ends are exclusive. Reviewdog offers every suggestion
    by itself, so a fix is one suggestion that replaces all from its first edit to its last; a fix
    that edits other files is left out.

    Source: https://github.com/reviewdog/reviewdog/tree/master/proto/rdf
    """
    failures = [
        {
            "message": f"not checked: {failure.reason}",
            "location": {"path": relative(outcome, failure.path)},
            "severity": "ERROR",
        }
        for failure in outcome.failures
    ]
    found = [_diagnostic(outcome, finding) for finding in outcome.findings]
    document = {"source": {"name": "fsdplint"}, "diagnostics": [*found, *failures]}
    return json.dumps(document, indent=2) + "\n"


def _diagnostic(outcome: Outcome, finding: Finding) -> dict[str, object]:
    """Return the Diagnostic of a finding."""
    source = outcome.sources[finding.span.path]
    where = source.in_document(finding.span.start, finding.span.end)
    return {
        "message": "\n".join([f"{finding.rule}: {finding.message}", *_evidence(outcome, finding)]),
        "location": {
            "path": relative(outcome, finding.span.path),
            "range": _range(source.document, *where),
        },
        "severity": _RDJSON[finding.severity],
        "code": {"value": finding.code, "url": rule_url(finding.rule)},
        "suggestions": _suggestions(source, finding.fix) if finding.fix else [],
    }


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
