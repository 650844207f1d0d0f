"""Words that quote the user's code, without what a terminal would obey."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.files.decoding import SourceError
from fsdplint.finding import Evidence, Finding
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable

_KEPT = "\n\t"  # which reports fold


def neutral(outcome: Outcome) -> Outcome:
    """``outcome`` with every control character in its words escaped; places stay as they are."""
    return replace(
        outcome,
        findings=tuple(map(_finding, outcome.findings)),
        failures=tuple(SourceError(e.path, _escaped(e.reason)) for e in outcome.failures),
    )


def _finding(finding: Finding) -> Finding:
    fix = finding.fix
    return replace(
        finding,
        message=_escaped(finding.message),
        label=_escaped(finding.label),
        evidence=tuple(Evidence(e.span, _escaped(e.note)) for e in finding.evidence),
        fix=fix and replace(fix, title=_escaped(fix.title)),
        fix_declined=_escaped(finding.fix_declined),
    )


def _escaped(text: str) -> str:
    return printable(text, _KEPT)
