"""A verification as SARIF 2.1.0: what is violated, beside what `check` finds.

Each clause that is violated is a result at its first line, with the other lines as related
locations; the clause is its rule, as ``verify/NAME``. Why a script did not finish is a
notification. Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import sarif_om as om

from fsdplint.files.discover import repository
from fsdplint.report.sarif import document
from fsdplint.report.sarif.artifacts import ROOT
from fsdplint.verify.events import Place
from fsdplint.verify.report.excerpt import stored_line
from fsdplint.verify.verdict import Status, Verdict, Verification


def as_sarif(verification: Verification, directory: Path) -> str:
    """Return the log of a verification.

    Args:
        directory: what its places are relative to.
    """
    judged = [v for v in verification.verdicts if v.status is not Status.NOT_EXERCISED]
    failure = verification.failure if not verification.violated else ""
    invocation = om.Invocation(
        execution_successful=not failure,
        tool_execution_notifications=[
            om.Notification(message=om.Message(text=failure), level="error")
        ]
        if failure
        else None,
    )
    results = [
        _result(verification, verdict, index, directory.absolute())
        for index, verdict in enumerate(judged)
        if verdict.status is Status.VIOLATED
    ]
    return document([_rule(verdict) for verdict in judged], invocation, results)


def _id(verdict: Verdict) -> str:
    return f"verify/{verdict.clause}"


def _rule(verdict: Verdict) -> om.ReportingDescriptor:
    return om.ReportingDescriptor(
        id=_id(verdict),
        short_description=om.MultiformatMessageString(text=verdict.contract),
        default_configuration=om.ReportingConfiguration(level="error"),
        properties={"tags": ["fsdp", "pytorch", "verify"], "precision": "very-high"},
    )


def _result(verification: Verification, verdict: Verdict, index: int, directory: Path) -> om.Result:
    first, *others = verdict.places or (Place(verification.script, 1),)
    return om.Result(
        rule_id=_id(verdict),
        rule_index=index,
        kind="fail",
        level="error",
        message=om.Message(text=_message(verification, verdict)),
        locations=[_location(first, directory)],
        related_locations=[
            _location(place, directory, number) for number, place in enumerate(others, 1)
        ]
        or None,
    )


def _message(verification: Verification, verdict: Verdict) -> str:
    """Return what the run showed, and what to do about it."""
    lines = [f"{verdict.contract} Observed: {verdict.figures}."]
    lines += verdict.details
    remedy = verification.remedies.get(verdict.clause)
    if remedy is not None:
        parts = {"rule": remedy.rule, "fix": remedy.fix, "run": remedy.command}
        lines += [f"{name}: {text}" for name, text in parts.items() if text]
    return "\n".join(lines)


def _location(place: Place, directory: Path, number: int = -1) -> om.Location:
    root = repository(directory)
    path = Path(os.path.normpath(directory / place.file))
    inside = path.is_relative_to(root)
    uri = quote(path.relative_to(root).as_posix()) if inside else path.as_uri()
    return om.Location(
        id=number,
        physical_location=om.PhysicalLocation(
            artifact_location=om.ArtifactLocation(uri=uri, uri_base_id=ROOT if inside else None),
            region=om.Region(start_line=stored_line(place, directory)),
        ),
    )
