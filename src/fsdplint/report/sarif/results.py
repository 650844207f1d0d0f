"""Findings as SARIF's results, with their evidence and their fixes."""

from __future__ import annotations

import re

import sarif_om as om

from fsdplint.finding import Edit, Evidence, Finding, Fix, Span
from fsdplint.report.replacements import replacements
from fsdplint.report.sarif.artifacts import Artifact, Artifacts
from fsdplint.report.sarif.rules import PRECISION

# What a reader would take for a link: "blocks[0](x)".
_LINK_START = re.compile(r"\[(?=[^\[\]]*\]\()")
_SPECIAL = re.compile(r"[\[\]\\]")


def result_of(
    finding: Finding, rule_index: int, fingerprint: str, artifacts: Artifacts
) -> om.Result:
    """Return ``finding`` with its evidence as related locations and as a flow through the code.

    Args:
        rule_index: the index of its rule's description.
        fingerprint: its identity, which does not depend on line numbers.
    """
    artifact = artifacts.of(finding.span)
    return om.Result(
        rule_id=finding.code,
        rule_index=rule_index,
        kind="fail",
        level=finding.severity.value,
        message=om.Message(text=_message(finding, artifact)),
        locations=[
            om.Location(
                physical_location=artifact.physical(finding.span, context=True),
                message=om.Message(text=finding.label) if finding.label else None,
            )
        ],
        related_locations=[
            _place(evidence.span, _note(evidence), artifacts, number)
            for number, evidence in enumerate(finding.evidence, 1)
        ]
        or None,
        code_flows=[_code_flow(finding, artifacts)] if finding.evidence else None,
        partial_fingerprints={
            "primaryLocationLineHash": artifact.line_hash(finding.span),
            "fsdplint/v1": fingerprint,
        },
        fixes=[_fix(finding.fix, artifacts)] if finding.fix else None,
        properties=_properties(finding),
    )


def _message(finding: Finding, artifact: Artifact) -> str:
    text = _LINK_START.sub(r"\\[", " ".join(finding.message.split()))
    parts = [text if text.endswith(".") else f"{text}."]
    cell = artifact.source.cell(artifact.source.position(finding.span.start)[0])
    if cell is not None:
        parts.append("This is in cell {} on line {}.".format(*cell))
    links = [f"[{_escaped(_note(e))}]({n})" for n, e in enumerate(finding.evidence, 1)]
    if links:
        parts.append(f"See where: {', '.join(links)}.")
    return " ".join(parts)


def _note(evidence: Evidence) -> str:
    return " ".join(evidence.note.split()) or "here"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _place(span: Span, note: str, artifacts: Artifacts, number: int = -1) -> om.Location:
    return om.Location(
        id=number,
        physical_location=artifacts.of(span).physical(span),
        message=om.Message(text=note),
    )


def _code_flow(finding: Finding, artifacts: Artifacts) -> om.CodeFlow:
    """Return the evidence in the order that the program reaches it; the finding is the end."""
    places = [(evidence.span, _note(evidence)) for evidence in finding.evidence]
    places.append((finding.span, finding.label or finding.message))
    flow = [om.ThreadFlowLocation(location=_place(*place, artifacts)) for place in places]
    return om.CodeFlow(thread_flows=[om.ThreadFlow(locations=flow)])


def _properties(finding: Finding) -> dict[str, str]:
    applicability = finding.fix.safety.value if finding.fix else "none"
    declined = {"fixDeclined": finding.fix_declined} if finding.fix_declined else {}
    return {"confidence": PRECISION, "fixApplicability": applicability, **declined}


def _fix(fix: Fix, artifacts: Artifacts) -> om.Fix:
    title = f"{fix.title[0].upper()}{fix.title[1:]}."
    by_file: dict[str, tuple[Edit, ...]] = {}
    for edit in fix.edits:
        by_file[edit.span.path] = (*by_file.get(edit.span.path, ()), edit)
    return om.Fix(
        artifact_changes=[_change(edits, artifacts) for edits in by_file.values()],
        description=om.Message(text=title),
    )


def _change(edits: tuple[Edit, ...], artifacts: Artifacts) -> om.ArtifactChange:
    """Return the change that ``edits`` make to their file as it is stored."""
    artifact = artifacts.of(edits[0].span)
    return om.ArtifactChange(
        artifact_location=artifact.location,
        replacements=[
            om.Replacement(
                deleted_region=artifact.region(start, end),
                inserted_content=om.ArtifactContent(text=text),
            )
            for start, end, text in replacements(artifact.source, edits)
        ],
    )
