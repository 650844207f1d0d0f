"""Findings as GitLab's Code Quality report, which merge requests show.

Paths are relative to the working directory, which is to be the repository's. GitLab takes entries
with one fingerprint for one, and those that the target branch has too for old ones. The lines of a
notebook are those of its JSON.
"""

from __future__ import annotations

import json
from hashlib import sha256

from fsdplint.finding import Finding, Severity
from fsdplint.fingerprint import fingerprints
from fsdplint.outcome import Outcome
from fsdplint.report.places import in_document, relative
from fsdplint.report.style import Style

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}


def gitlab(outcome: Outcome, style: Style) -> str:  # noqa: ARG001 - a Report
    """A list of findings and of what was not checked."""
    found = [_finding(outcome, *item) for item in fingerprints(outcome).items()]
    reasons = dict.fromkeys((failure.path, failure.reason) for failure in outcome.failures)
    failed = [_failure(relative(outcome, path), reason) for path, reason in reasons]
    return json.dumps([*found, *failed], indent=2) + "\n"


def _finding(outcome: Outcome, finding: Finding, fingerprint: str) -> dict[str, object]:
    return {
        "description": f"{finding.code} {finding.rule}: {finding.message}",
        "check_name": finding.rule,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {
            "path": relative(outcome, finding.span.path),
            "lines": _lines(outcome, finding),
        },
    }


def _lines(outcome: Outcome, finding: Finding) -> dict[str, int]:
    (first, _), (last, _) = in_document(outcome, finding.span)
    return {"begin": first, "end": last}


def _failure(path: str, reason: str) -> dict[str, object]:
    return {
        "description": f"not checked: {reason}",
        "check_name": "not-checked",
        "fingerprint": sha256(f"{path}\0{reason}".encode()).hexdigest()[:32],
        "severity": "blocker",
        "location": {"path": path, "lines": {"begin": 1, "end": 1}},
    }
