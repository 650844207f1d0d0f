"""The comparison with labels finds each label's findings, misses and alarms, and says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import corpus
from benchmarks.corpus import GROUPS, Found, Judged, Label, judge, unlabelled
from fsdplint.rules import RULES

WRONG_ORDER = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
for layer in model:
    fully_shard(layer)
fully_shard(model)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""
NOT_CALLED = WRONG_ORDER.replace("model(torch", "model.forward(torch")


def label(rule: str, verdict: str, line: int, path: str = "train.py") -> Label:
    return Label("some/made", "0" * 40, path, line, rule, verdict, "said")


def found(rule: str, line: int, path: str = "train.py", end: int = 0, also: int = 0) -> Found:
    own = (path, line, end or line)
    return Found(rule, (own, (path, also, also)) if also else (own,))


def verdicts(labels: list[Label], findings: list[Found]) -> list[list[int]]:
    return [[f.places[0][1] for f in one.found] for one in judge(labels, findings)]


def test_a_finding_is_near_its_label() -> None:
    findings = [found("optimizer-before-sharding", 20, end=22)]
    places = [16, 17, 25, 26]
    assert verdicts([label("R3", "VIOLATION", line) for line in places], findings) == [
        [], [20], [20], [],
    ]  # fmt: skip
    assert verdicts([label("R3", "VIOLATION", 20, "other.py")], findings) == [[]]
    assert verdicts([label("R4", "VIOLATION", 20)], findings) == [[]]
    by_evidence = [found("optimizer-before-sharding", 70, also=21)]
    assert verdicts([label("R3", "VIOLATION", 20)], by_evidence) == [[70]]


def test_what_is_missing_is_missing_in_the_whole_file() -> None:
    findings = [found("process-group-not-destroyed", 1)]
    assert verdicts([label("R10", "VIOLATION", 90)], findings) == [[1]]


def test_a_finding_that_a_label_asks_for_is_no_alarm() -> None:
    findings = [found("clip-grad-util-on-fsdp1", 10), found("clip-grad-util-on-fsdp1", 40)]
    labels = [
        label("R6", "VIOLATION", 10),
        label("R6", "TRAP", 12),
        label("R6", "BORDERLINE", 39),
        label("ALL_OTHER", "CLEAN", 0),
    ]
    assert verdicts(labels, findings) == [[10], [], [40], []]


def test_clean_files_have_nothing_else() -> None:
    findings = [
        found("direct-forward", 5),
        found("direct-forward", 5, "other.py"),
        found("root-not-sharded", 6),
    ]
    judged = judge([label("ALL_OTHER", "CLEAN", 0)], findings)
    assert judged == [Judged(label("ALL_OTHER", "CLEAN", 0), (findings[0],))]
    assert unlabelled(judged, findings) == findings[1:]


def test_what_labels_mean_are_rules() -> None:
    assert {rule for group in GROUPS.values() for rule in group} <= {rule.name for rule in RULES}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "checkouts" / "some" / "made"
    made.mkdir(parents=True)
    (made / "train.py").write_text(WRONG_ORDER)
    (made / "clean.py").write_text(NOT_CALLED)
    cells = [
        WRONG_ORDER[: WRONG_ORDER.index("model =")],
        WRONG_ORDER[WRONG_ORDER.index("model =") :],
    ]
    (made / "train.ipynb").write_text(notebook(cells))
    plus = tmp_path / "checkouts" / "else+made"
    plus.mkdir()
    (plus / "train.py").write_text(WRONG_ORDER)
    labels = [
        "some/made,0,train.py,6,R3,VIOLATION,before sharding",
        "some/made,0,train.py,10,R1,VIOLATION,not there",
        "some/made,0,train.py,0,ALL_OTHER,CLEAN,nothing else",
        "some/made,0,train.ipynb,6,R3,VIOLATION,of all cells",
        "some/made,0,clean.py,0,ALL_OTHER,CLEAN,said so",
        "else/made,0,train.py,6,R3,TRAP,no rule sees this",
        "else/made,0,train.py,1,OTHER-RESUME,LIKELY,who knows",
        "not/there,0,train.py,1,R3,VIOLATION,never judged",
    ]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["repo,commit,path,line,rule,verdict,reason", *labels]))
    assert corpus.main([str(table), str(tmp_path / "checkouts"), "--limit", "300"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "not/there: not judged, since it is not there at its commit\n"
    rows = {line.split("  ")[0]: line.split()[1:] for line in printed.out.splitlines()}
    assert rows["R1"] == ["1", "0", "0", "%", "0", "0", "0", "0", "1"]
    assert rows["R3"] == ["2", "2", "100", "%", "0", "0", "0", "1", "1"]
    assert rows["R1 to R12"] == ["to", "R12", "3", "2", "67", "%", "0", "0", "0", "1", "2"]
    assert rows["OTHER-RESUME"] == ["0", "0", "-", "1", "0", "0", "0", "0"]
    assert printed.out[printed.out.index("\nviolations missed") :] == (
        """
violations missed (1)
  R1 some/made train.py:10 not there

likely and not found (1)
  OTHER-RESUME (no rule) else/made train.py:1 who knows

findings where labels say BORDERLINE (0)

findings where labels say TRAP (1)
  optimizer-before-sharding else/made train.py:6  [R3 6: no rule sees this]

findings where labels say CLEAN (2)
  optimizer-before-sharding some/made clean.py:6  [ALL_OTHER 0: said so]
  direct-forward some/made clean.py:10  [ALL_OTHER 0: said so]

findings without a label (0)
"""
    )


def notebook(cells: list[str]) -> str:
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    text = {"cell_type": "markdown", "metadata": {}, "source": ["Read\n", "me."]}
    of_cells = [{**code, "source": cell.splitlines(keepends=True)} for cell in cells]
    document = {"cells": [of_cells[0], text, *of_cells[1:]], "metadata": {}}
    return json.dumps({**document, "nbformat": 4, "nbformat_minor": 5})


def test_labels_are_read_as_they_are_written(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(
        'repo,commit,path,line,rule,verdict,reason\nsome/made,ab12,train.py,6,R3,TRAP,"a, b"\n'
    )
    assert corpus.read(table) == [Label("some/made", "ab12", "train.py", 6, "R3", "TRAP", "a, b")]


def test_a_repository_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRONG_ORDER)
    assert corpus.examine(tmp_path, 0.0, preview=False) is None
