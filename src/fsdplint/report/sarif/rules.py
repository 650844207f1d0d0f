"""Rules as SARIF describes them: from their declarations and their pages."""

from __future__ import annotations

import sarif_om as om

from fsdplint.finding import Severity
from fsdplint.pages import harm, page, unmarked
from fsdplint.rule import Rule
from fsdplint.urls import rule_url

# Silence where something is not known is the rules' first contract; preview rules are to show it.
PRECISION, PRECISION_IN_PREVIEW = "high", "medium"
_SUBJECTS = {"0": "maintainability", "2": "sharding", "3": "training-step", "5": "checkpointing"}
_QUALITIES = {Severity.ERROR: "correctness", Severity.WARNING: "performance"}
_GITHUB_SEVERITIES = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "recommendation",
}


def descriptor(rule: Rule) -> om.ReportingDescriptor:
    """Return the description of ``rule`` that readers show beside its results."""
    text = page(rule.name)
    summary = f"{rule.summary[0].upper()}{rule.summary[1:]}."
    return om.ReportingDescriptor(
        id=rule.code,
        name="".join(map(str.capitalize, rule.name.split("-"))),
        short_description=_message(summary),
        full_description=_message(f"{summary} {harm(text)}"),
        help=om.MultiformatMessageString(text=unmarked(text), markdown=text),
        help_uri=rule_url(rule.name),
        default_configuration=om.ReportingConfiguration(level=rule.severity.value),
        properties={
            "fixes": rule.applicability,
            "tags": _tags(rule),
            "precision": PRECISION_IN_PREVIEW if rule.preview else PRECISION,
            "problem.severity": _GITHUB_SEVERITIES[rule.severity],
        },
    )


def _tags(rule: Rule) -> list[str]:
    subject = _SUBJECTS.get(rule.code[3])
    quality = _QUALITIES.get(rule.severity) if subject != "maintainability" else None
    return sorted({"fsdp", "pytorch", rule.name} | {tag for tag in (subject, quality) if tag})


def _message(text: str) -> om.MultiformatMessageString:
    return om.MultiformatMessageString(text=unmarked(text))
