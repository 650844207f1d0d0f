from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sarif_logs import BROKEN, apply_fixes, outcome_of, run_of, write

from fsdplint.check import check
from fsdplint.files.file import from_text
from fsdplint.finding import Evidence, Finding, Severity, Span
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Outcome
from fsdplint.report.sarif.artifacts import line_hashes
from fsdplint.settings.config import Settings

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = REPOSITORY / "tests" / "fixtures" / "scripts"
PROJECTS = REPOSITORY / "tests" / "fixtures" / "projects"

EMOJI = """\
# é 🚀
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
if model:
\tfully_shard(model)
name = "🚀é"; model.forward(torch.ones(8)); print("🚀🚀", name)
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only(run: dict[str, Any]) -> dict[str, Any]:
    (result,) = run["results"]
    assert isinstance(result, dict)
    return result


def region(location: dict[str, Any]) -> tuple[int, int, int, int]:
    found = location["physicalLocation"]["region"]
    return tuple(found[name] for name in ("startLine", "startColumn", "endLine", "endColumn"))


def test_a_result_has_its_evidence_across_files() -> None:
    shard = (
        "from torch.distributed.fsdp import fully_shard\n\n\ndef shard(m):\n    fully_shard(m)\n"
    )
    train = (
        "import torch\nfrom lib.shard import shard\n\nmodel = torch.nn.Linear(8, 8)\n"
        "optimizer = torch.optim.AdamW(model.parameters())\nshard(model)\n"
    )
    outcome = outcome_of({"pyproject.toml": "", "lib/shard.py": shard, "train.py": train})
    run = run_of(outcome)
    result = only(run)
    (finding,) = outcome.findings
    notes = [evidence.note for evidence in finding.evidence]
    links = ", ".join(f"[{note}]({number})" for number, note in enumerate(notes, 1))
    number = [rule["id"] for rule in run["tool"]["driver"]["rules"]].index("FSD301")
    assert (result["ruleId"], result["ruleIndex"]) == ("FSD301", number)
    assert (result["kind"], result["level"]) == ("fail", "error")
    assert result["message"]["text"] == f"{finding.message}. See where: {links}."
    (location,) = result["locations"]
    assert region(location) == (5, 13, 5, 50)
    code = "torch.optim.AdamW(model.parameters())"
    assert location["physicalLocation"]["region"]["snippet"]["text"] == code
    around = location["physicalLocation"]["contextRegion"]
    assert around == {
        "startLine": 3,
        "startColumn": 1,
        "endLine": 7,
        "endColumn": 1,
        "snippet": {"text": train[train.index("\nmodel") :]},
    }
    related = result["relatedLocations"]
    assert [place["id"] for place in related] == list(range(1, len(notes) + 1))
    assert [place["message"]["text"] for place in related] == notes
    inside = next(place for place in related if _uri(place) == "lib/shard.py")
    assert region(inside) == (5, 5, 5, 19)
    (flow,) = result["codeFlows"]
    steps = [step["location"] for step in flow["threadFlows"][0]["locations"]]
    assert [region(step) for step in steps] == [*map(region, related), (5, 13, 5, 50)]
    assert result["properties"] == {"confidence": "high", "fixApplicability": "unsafe"}


def _uri(location: dict[str, Any]) -> str:
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert isinstance(uri, str)
    return uri


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_columns_are_utf16_code_units(newline: str, mark: bytes) -> None:
    data = mark + EMOJI.replace("\n", newline).encode()
    result = only(run_of(outcome_of({"train.py": data})))
    assert region(result["locations"][0]) == (8, 15, 8, 28)
    assert region(result["relatedLocations"][0]) == (7, 2, 7, 20)
    assert result["partialFingerprints"]["primaryLocationLineHash"] == line_hashes(data)[7]
    deleted = result["fixes"][0]["artifactChanges"][0]["replacements"][0]["deletedRegion"]
    assert (deleted["startLine"], deleted["startColumn"]) == (8, 20)


def test_a_place_in_a_notebook_is_that_in_its_document(directory: Path) -> None:
    notebook = json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n"]},
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": EMOJI.splitlines(keepends=True),
                },
            ],
            "metadata": {"language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    )
    run = run_of(outcome_of({"train.ipynb": notebook}))
    result = only(run)
    found = result["locations"][0]["physicalLocation"]["region"]
    lines = notebook.splitlines()
    written = lines[found["startLine"] - 1]
    assert written[found["startColumn"] - 1 : found["endColumn"] - 1] == "model.forward"
    assert found["snippet"]["text"] == "model.forward"
    assert " This is in cell 2 on line 8. See where: " in result["message"]["text"]
    hashes = line_hashes(notebook.encode())
    assert (
        result["partialFingerprints"]["primaryLocationLineHash"] == (hashes[found["startLine"] - 1])
    )
    apply_fixes(run, directory)
    fixed_text = Path("train.ipynb").read_text("utf-8")
    assert fixed_text == notebook.replace("model.forward(", "model(")


def test_what_is_no_link_is_not_taken_for_one() -> None:
    source = from_text("a[0](1)\n", "/work/a.py")
    span = Span(source.path, 0, 1)
    finding = Finding(
        "direct-forward",
        "FSD302",
        Severity.ERROR,
        "`a[0](1)` and b[1] are called",
        span,
        evidence=(Evidence(Span(source.path, 1, 2), r"c[2]\d"), Evidence(span, "")),
    )
    result = only(run_of(Outcome((finding,), {source.path: source}, (), "/work")))
    assert result["message"]["text"] == (
        r"`a\[0](1)` and b[1] are called. See where: [c\[2\]\\d](1), [here](2)."
    )


def test_fingerprints_survive_moved_lines() -> None:
    before = run_of(outcome_of({"train.py": BROKEN}))["results"]
    after = run_of(outcome_of({"train.py": "import os\n\n" + BROKEN}))["results"]
    assert [_own(result) for result in before] == [_own(result) for result in after]
    assert len({_own(result) for result in before}) == len(before) == 2


def _own(result: dict[str, Any]) -> str:
    fingerprint = result["partialFingerprints"]["fsdplint/v1"]
    assert isinstance(fingerprint, str)
    return fingerprint


def test_an_insertion_of_nothing_is_written_as_such() -> None:
    outcome = outcome_of({"a.py": "x = 1  # fsdplint: ignore[direct-forward]\n"})
    (change,) = only(run_of(outcome))["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 1, "startColumn": 6, "endLine": 1, "endColumn": 42},
            "insertedContent": {"text": ""},
        }
    ]


def test_a_fix_that_is_declined_says_why() -> None:
    outcome = outcome_of({"train.py": BROKEN})
    declined = replace(outcome.findings[0], fix=None, fix_declined="it is read in between")
    result = only(run_of(replace(outcome, findings=(declined,))))
    assert "fixes" not in result
    assert result["properties"] == {
        "confidence": "high",
        "fixApplicability": "none",
        "fixDeclined": "it is read in between",
    }


def test_a_long_line_around_is_not_shown() -> None:
    result = only(run_of(outcome_of({"train.py": EMOJI + f"x = '{'x' * 5000}'\n"})))
    assert "contextRegion" not in result["locations"][0]["physicalLocation"]


def told_of_found(outcome: Outcome) -> Outcome:
    """The outcome as if the rules that find nothing had not run: their descriptions take long."""
    return replace(outcome, rules=frozenset(finding.rule for finding in outcome.findings))


def programs() -> list[Path]:
    """One script of each rule, and every project."""
    scripts = (min(folder.glob("*.py")) for folder in SCRIPTS.iterdir() if folder.is_dir())
    return sorted([*scripts, *(path for path in PROJECTS.iterdir() if path.is_dir())])


@pytest.mark.parametrize("program", programs(), ids=lambda path: str(path.name))
def test_fixes_applied_by_another_give_what_fix_gives(directory: Path, program: Path) -> None:
    files = [program] if program.is_file() else sorted(program.rglob("*.py"))
    top = program.parent if program.is_file() else program
    write(directory, {str(file.relative_to(top)): file.read_bytes() for file in files})

    def recheck(overlay: dict[str, Any]) -> Outcome:
        return check(["."], Settings(), overlay)

    first = recheck({})
    expected = {new.path: new.encode() for _, new in fixed(first, recheck, True).files}
    before = {path: Path(path).read_bytes() for path in first.sources}
    now = first
    while apply_fixes(run_of(told_of_found(now)), directory):
        now = recheck({})
    after = {path: Path(path).read_bytes() for path in first.sources}
    assert {path: data for path, data in after.items() if data != before[path]} == expected


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_fixes_fit_every_line_end(directory: Path, mark: bytes) -> None:
    for newline in ("\n", "\r\n"):
        text = ("# 🚀\n" + BROKEN).replace("\n", newline)
        outcome = outcome_of({"train.py": mark + text.encode()})
        expected = fixed(outcome, lambda overlay: check(["."], Settings(), overlay), True)
        while apply_fixes(run_of(check(["."], Settings())), directory):
            pass
        ((_, new),) = expected.files
        assert Path("train.py").read_bytes() == new.encode()
