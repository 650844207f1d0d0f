"""The JSON that fsdplint prints has what the schemas in the documentation say, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from schemas import SCHEMAS, expect

from fsdplint.check import check
from fsdplint.cli import main as cli
from fsdplint.report import render
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

EXAMPLES = Path(__file__).parents[2] / "examples"
BROKEN = EXAMPLES / "broken"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--output-format", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == name


def test_check() -> None:
    outcome = check([EXAMPLES], defaults(EVERYTHING))
    assert len(outcome.findings) > 20
    document = json.loads(render(outcome, "json"))
    expect(document, "check")
    for line in render(outcome, "json-lines").splitlines():
        expect(json.loads(line), "finding")
    expect(json.loads(render(outcome, "json", counts=True)), "statistics")
    expect(json.loads(render(outcome, "compact")), "compact")


def test_what_could_not_be_checked(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "long.py").write_text(
        f"from torch.distributed.fsdp import fully_shard\n\n{'x' * 600_000} = 1\n"
    )
    settings = replace(defaults(), select=frozenset({"direct-forward"}))
    document = json.loads(render(check([tmp_path], settings), "json"))
    assert {file["state"] for file in document["files"]} == {"failed", "skipped"}
    expect(document, "check")
    short = json.loads(render(check([tmp_path], settings), "compact"))
    assert len(short["failures"]) == len(document["failures"]) > 0
    expect(short, "compact")


def test_a_notebook(tmp_path: Path) -> None:
    code = (BROKEN / "direct_forward.py").read_text("utf-8")
    cell = {"cell_type": "code", "source": code, "metadata": {}, "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    document = json.loads(render(check([tmp_path], defaults()), "json"))
    assert document["findings"][0]["start"]["cell"] == 1
    expect(document, "check")


def test_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    for script in (BROKEN / "optimizer_before_sharding" / "train.py", BROKEN / "epoch_not_set.py"):
        document = printed(capsys, "inspect", str(script))
        assert document["entries"]
        expect(document, "inspect")


def test_rules(capsys: pytest.CaptureFixture[str]) -> None:
    expect(printed(capsys, "rules"), "rules")
    expect(printed(capsys, "explain", "direct-forward"), "rule")


def test_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = BROKEN / "no_sync_under_fsdp2.py"
    log = tmp_path / "log.txt"
    log.write_text(
        f'  File "{script}", line 20, in <module>\n'
        "AttributeError: 'FSDPGPT' object has no attribute 'no_sync'\n"
        "CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    document = printed(capsys, "explain", "--error", str(log), str(script))
    assert document["rules"] and document["findings"]
    expect(document, "error")


def test_a_member_that_no_schema_names_is_found() -> None:
    outcome = check([BROKEN / "direct_forward.py"], defaults())
    finding = json.loads(render(outcome, "json-lines").splitlines()[0])
    expect(finding, "finding")
    with pytest.raises(ValidationError):
        expect(finding | {"more": 1}, "finding")
    with pytest.raises(ValidationError):
        expect(finding | {"evidence": [{"note": 1}]}, "finding")
