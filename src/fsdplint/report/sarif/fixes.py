"""Fixes as replacements in files as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

import sarif_om as om

from fsdplint.finding import Edit, Fix
from fsdplint.fixes.edits import apply
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
    replace = _in_document if artifact.source.notebook else _in_text
    return om.ArtifactChange(
        artifact_location=artifact.location,
        replacements=[
            om.Replacement(
                deleted_region=artifact.region(start, end),
                inserted_content=om.ArtifactContent(text=text),
            )
            for start, end, text in replace(artifact, edits)
        ],
    )


def _in_text(_: Artifact, edits: list[Edit]) -> Iterator[tuple[int, int, str]]:
    for edit in edits:
        yield edit.span.start, edit.span.end, edit.text


def _in_document(artifact: Artifact, edits: list[Edit]) -> Iterator[tuple[int, int, str]]:
    """One replacement of what differs, since an edit may take JSON around it along."""
    source, old = artifact.source, artifact.file.text
    assert source.notebook is not None
    new = source.notebook.replace(source.text, apply(source.text, edits))
    shortest = min(len(old), len(new))
    head = _equal(shortest, lambda size: old[:size] == new[:size])
    tail = _equal(shortest - head, lambda size: old[len(old) - size :] == new[len(new) - size :])
    yield head, len(old) - tail, new[head : len(new) - tail]


def _equal(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest size up to ``limit`` for which ``holds``, which does for every smaller one."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
