"""Fixes as replacements in files as they are."""

from __future__ import annotations

from itertools import groupby

import sarif_om as om

from fsdplint.finding import Edit, Fix
from fsdplint.report.replacements import replacements
from fsdplint.report.sarif.artifacts import Artifact, Artifacts


def fix_of(fix: Fix, artifacts: Artifacts) -> om.Fix:
    """``fix`` with a change for each file that it edits."""
    edits = sorted(fix.edits, key=lambda edit: (edit.span.path, edit.span.start, edit.span.end))
    changes = []
    for _, in_file in groupby(edits, key=lambda edit: edit.span.path):
        group = list(in_file)
        artifact = artifacts.of(group[0].span)
        changes.append(_change(artifact, group))
    title = f"{fix.title[0].upper()}{fix.title[1:]}."
    return om.Fix(artifact_changes=changes, description=om.Message(text=title))


def _change(artifact: Artifact, edits: list[Edit]) -> om.ArtifactChange:
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
