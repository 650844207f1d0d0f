"""Convert findings to LSP diagnostics."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types

from fsdplint.finding import Finding, Severity, Span
from fsdplint.suppression.comments import UNUSED
from fsdplint.urls import rule_url

SOURCE = "fsdplint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
# Rules about code that does nothing, and about names that PyTorch has moved or replaced.
_TAGS = {
    UNUSED: [types.DiagnosticTag.Unnecessary],
    "old-import-path": [types.DiagnosticTag.Deprecated],
}

Locate = Callable[[Span], "types.Location | None"]
"""Returns where the client has a span, None if it has no such place."""


def diagnostic(finding: Finding, place: types.Location, locate: Locate) -> types.Diagnostic:
    """Return ``finding``, which is at ``place``, as a diagnostic."""
    related = [
        types.DiagnosticRelatedInformation(location, evidence.note)
        for evidence in finding.evidence
        if (location := locate(evidence.span)) is not None
    ]
    return types.Diagnostic(
        range=place.range,
        message=f"{finding.rule}: {finding.message}",
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=types.CodeDescription(rule_url(finding.rule)),
        source=SOURCE,
        tags=_TAGS.get(finding.rule),
        related_information=related or None,
        data=data(finding),
    )


def data(finding: Finding) -> dict[str, str | None]:
    """Return the rule of a finding and whether it can be fixed, for clients."""
    return {
        "rule": finding.rule,
        "fix": finding.fix.safety.value if finding.fix else None,
        "declined": finding.fix_declined or None,
    }
