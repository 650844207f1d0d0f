"""The directory that URIs are relative to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath

from fsdplint.finding import Finding
from fsdplint.outcome import Outcome


def root_of(outcome: Outcome) -> str:
    """The repository's directory, or the nearest one above that holds all that findings name."""
    named = {path for finding in outcome.findings for path in _paths(finding)}
    outside = [path for path in named if not PurePath(path).is_relative_to(outcome.root)]
    if not outside:
        return outcome.root
    return PurePath(os.path.commonpath([outcome.root, *outside])).as_posix()


def _paths(finding: Finding) -> Iterable[str]:
    yield finding.span.path
    yield from (evidence.span.path for evidence in finding.evidence)
    if finding.fix is not None:
        yield from (edit.span.path for edit in finding.fix.edits)
