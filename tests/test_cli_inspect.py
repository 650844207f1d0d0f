"""`fsdplint inspect`; what it prints in full is in tests/engine/test_inspection.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import Ran, run

SCRIPT = """\
from torch.distributed.fsdp import fully_shard
model = make()
fully_shard(model, reshard_after_forward=True)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_text(here: Path) -> None:
    (here / "a.py").write_text(SCRIPT)
    expected = """\
a.py: top level
  models
    a.py:2  model: make()
    a.py:3    itself  FSDP2  reshard_after_forward=True
  no optimizer found
  execution order
    a.py:3  shard: fully_shard(model, reshard_after_forward=True)
"""
    assert run("inspect", "a.py", NO_COLOR="1") == Ran(0, expected, "")


def test_methods_that_nothing_calls(here: Path) -> None:
    (here / "a.py").write_text(
        """\
from torch.distributed.fsdp import FSDPModule, fully_shard

class Trainer:
    def __init__(self, model):
        self.model = fully_shard(model)

    def evaluate(self, batch):
        return self.model.forward(batch)

def only_says(model: FSDPModule):
    return model.module
"""
    )
    ran = run("inspect", "a.py", NO_COLOR="1")
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert [line for line in lines if line.startswith("a.py:") and line.endswith("()")] == [
        "a.py: Trainer.__init__()",
        "a.py: only_says()",
        "a.py: Trainer.evaluate()",
    ]
    assert "a.py:10 [declared as an FSDP2 unit] shard: FSDPModule" in lines
    assert lines[-1] == "a.py:8 [bypasses the hooks] forward: self.model.forward(batch)"


def test_json(here: Path) -> None:
    (here / "a.py").write_text(SCRIPT)
    ran = run("inspect", "a.py", "--output-format=json")
    place = {"path": "a.py", "line": 3, "column": 1}
    code = "fully_shard(model, reshard_after_forward=True)"
    sharding = {
        "generation": "FSDP2",
        "targets": [""],
        "arguments": ["reshard_after_forward=True"],
        "span": place,
    }
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == {
        "version": 1,
        "path": "a.py",
        "entries": [
            {
                "path": "a.py",
                "name": "<module>",
                "models": [
                    {
                        "name": "model",
                        "built": "make()",
                        "span": {"path": "a.py", "line": 2, "column": 9},
                        "shardings": [sharding],
                        "unsharded": [],
                    }
                ],
                "settings": [],
                "optimizers": [],
                "steps": [{"depth": 0, "kind": "shard", "text": code, "span": place, "note": ""}],
                "variants": [],
                "followed": 1,
            }
        ],
        "unresolved": {"imports": [], "calls": [], "entries": [], "files": []},
    }


def test_a_script_without_sharding(here: Path) -> None:
    (here / "a.py").write_text("x = 1\n")
    assert run("inspect", "a.py") == Ran(0, "no sharding call is reachable from a.py\n", "")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("gone.py", "gone.py: No such file or directory"),
        ("lib", "lib: a folder, not a regular file"),
        ("broken.py", "broken.py: line 2: "),
    ],
)
def test_what_cannot_be_inspected_is_one_line_and_a_2(here: Path, script: str, reason: str) -> None:
    (here / "broken.py").write_text("x = 1\ndef f(:\n")
    (here / "lib").mkdir()
    ran = run("inspect", script)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith(f"fsdplint: {reason}")
