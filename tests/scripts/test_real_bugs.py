"""Bugs are replayed from clones: found before their fix, and told if still found behind it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.replay.__main__ import TABLE, main
from benchmarks.replay.table import read
from fsdplint.rules import RULES

BUGGY = """\
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
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())\n"
FIXED = BUGGY.replace(OPTIMIZER, "").replace("model(torch", OPTIMIZER + "model(torch")


def commit(repository: Path, text: str) -> str:
    (repository / "train.py").write_text(text)
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "m", "--allow-empty"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return head.stdout.strip()


def replayed(
    folder: Path, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    table = folder / "bugs.csv"
    table.write_text("\n".join(["repo,buggy,fixed,path,lines,rules,kind,about", *rows]) + "\n")
    origin = f"{(folder / 'origin').as_posix()}/"
    code = main([str(folder / "clones"), "--table", str(table), "--origin", origin])
    return code, [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_a_bug_is_found_and_not_behind_its_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "origin" / "some" / "made"
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    buggy, fixed = commit(repository, BUGGY), commit(repository, FIXED)
    rule = "optimizer-before-sharding"
    code, said = replayed(
        tmp_path, [f"some/made,{buggy},{fixed},train.py,6,{rule},{rule},w"], capsys
    )
    assert (code, said[1].split()) == (0, [rule, "1", "1", "1"])
    assert "still found at the fix (0)" in said

    # A fix that changes nothing, a bug elsewhere in the file, one without a rule.
    rows = [
        f"some/made,{buggy},{buggy},train.py,6,{rule},stale,w",
        f"some/made,{buggy},,train.py,1,{rule},missed,w",
        f"some/made,{buggy},,train.py,6,,uncovered,w",
    ]
    code, said = replayed(tmp_path, rows, capsys)
    assert code == 1
    assert [line.split() for line in said[1:4]] == [
        ["missed", "1", "1", "0"],
        ["stale", "1", "1", "1"],
        ["uncovered", "1", "0", "0"],
    ]
    assert {"missed (1)", "no rule (1)", "still found at the fix (1)"} <= set(said)


def test_what_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = replayed(tmp_path, ["some/made,abc,,train.py,6,direct-forward,kind,w"], capsys)
    assert code == 1


def test_the_table_names_rules_and_commits_that_there_can_be() -> None:
    bugs = read(TABLE)
    assert len(bugs) >= 100
    names = {rule.name for rule in RULES}
    for bug in bugs:
        assert set(bug.rules) <= names, bug
        assert all(len(each) == 40 for each in bug.commits), bug
        assert bug.lines and bug.about and bug.kind, bug
