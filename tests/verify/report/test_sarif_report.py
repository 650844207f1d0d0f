"""What a verification is as SARIF: places from the repository's root, remedies, failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import CONFIRMED, confirmed, skipped, violated
from samples import verification as of

from fsdplint.verify.events import Place
from fsdplint.verify.report import render
from fsdplint.verify.verdict import Remedy, Verdict, Verification


def made(*verdicts: Verdict, failure: str = "") -> Verification:
    return of(verdicts, [], failure=failure)


def run_of(verification: Verification, folder: Path) -> dict[str, Any]:
    log = json.loads(render(verification, "sarif", folder, color=False, width=80))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder inside a repository."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "training").mkdir()
    return tmp_path / "training"


def place(line: int) -> dict[str, object]:
    artifact = {"uri": "training/train.py", "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}


def test_a_violated_clause_is_a_result(folder: Path) -> None:
    remedies = {"forward": Remedy("direct-forward at train.py:10", "call the module", "fsdplint x")}
    verification = made(
        confirmed("units", "2 units"),
        skipped("saves", "nothing was saved"),
        violated("forward", "bypasses its hooks", ["by rank 0"], 10, 7),
    )
    run = run_of(replace(verification, remedies=remedies), folder)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["verify/units", "verify/forward"]
    (result,) = run["results"]
    assert result == {
        "ruleId": "verify/forward",
        "ruleIndex": 1,
        "kind": "fail",
        "level": "error",
        "message": {
            "text": "The contract of forward, in one sentence. Observed: bypasses its "
            "hooks.\nby rank 0\nrule: direct-forward at train.py:10\nfix: call the module\n"
            "run: fsdplint x"
        },
        "locations": [place(10)],
        "relatedLocations": [{"id": 1, **place(7)}],
    }
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_a_clause_without_a_line_is_at_the_script(folder: Path) -> None:
    run = run_of(made(violated("collectives", "a rank is missing", [])), folder)
    assert [result["locations"] for result in run["results"]] == [[place(1)]]


def test_a_failure_is_a_notification(folder: Path) -> None:
    run = run_of(made(confirmed("units", "2 units"), failure="rank 0 died"), folder)
    assert run["results"] == []
    assert run["invocations"] == [
        {
            "executionSuccessful": False,
            "toolExecutionNotifications": [{"level": "error", "message": {"text": "rank 0 died"}}],
        }
    ]


def test_the_same_verification_gives_the_same_bytes(folder: Path) -> None:
    one, other = (render(CONFIRMED, "sarif", folder, color=False, width=w) for w in (40, 80))
    assert one == other


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("../lib/x y.py", "lib/x%20y.py"),
        ("../../x.py", "file://{outside}/x.py"),
        ("/lib/torch/x.py", "file:///lib/torch/x.py"),
    ],
)
def test_places_elsewhere_are_found(folder: Path, path: str, uri: str) -> None:
    verdict = replace(violated("units", "one rank", [], 1), places=(Place(path, 3),))
    (result,) = run_of(made(verdict), folder)["results"]
    (location,) = result["locations"]
    artifact = location["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == uri.format(outside=folder.parent.parent)
    assert ("uriBaseId" in artifact) == (not uri.startswith("file:"))
