"""The report of a violated clause or a crash ends with the rule, the fix and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.rules import RULES
from fsdplint.verify.clauses import NAMES
from fsdplint.verify.remedies import FAILURE, FIXES, rules_of, with_remedies
from fsdplint.verify.report import render
from fsdplint.verify.verdict import RankSummary, Remedy, Status, Verdict, Verification

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
"""
TRAIN = """
for _ in range(2):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
EARLY = (
    f"{HEAD}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfully_shard(model)\n{TRAIN}"
)


def test_every_clause_has_a_fix_and_knows_its_rules() -> None:
    assert set(FIXES) == set(NAMES)
    names = {rule.name for rule in RULES}
    assert {name for clause in FIXES for name in rules_of(clause)} <= names


def _remedied(verifier: Verifier, folder: Path, script: str, *arguments: str) -> Verification:
    (folder / "train.py").write_text(script)
    found = verifier(folder / "train.py", arguments=arguments)
    return with_remedies(found, folder)


def _text(verification: Verification, folder: Path) -> str:
    return render(verification, "text", folder, color=False, width=80)


def test_a_violated_clause_ends_with_what_to_do(verifier: Verifier, tmp_path: Path) -> None:
    found = _remedied(verifier, tmp_path, EARLY, "--lr", "a b")
    assert dict(found.remedies) == {
        "optimizer": Remedy(
            "optimizer-before-sharding at train.py:9",
            "build the optimizer after the last `fully_shard`",
            "fsdplint check train.py --select optimizer-before-sharding --fix --unsafe-fixes "
            "--verify --verify-args '--lr '\"'\"'a b'\"'\"''",
        )
    }
    section = next(s for s in _text(found, tmp_path).split("\n\n") if s.startswith("✗ optimizer"))
    assert section.splitlines()[-3:-1] == [
        "  rule:     optimizer-before-sharding at train.py:9",
        "  fix:      build the optimizer after the last `fully_shard`",
    ]
    assert section.splitlines()[-1].startswith("  run:      fsdplint check train.py --select ")


def test_a_crash_is_explained(verifier: Verifier, tmp_path: Path) -> None:
    lines = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])\n\n"
        "    def forward(self, x):\n        for layer in self.layers:\n"
        "            x = layer(x)\n        return x\n\n"
        "model = Net()\nfully_shard(model.layers)\nfully_shard(model)\n"
    )
    found = _remedied(verifier, tmp_path, f"{HEAD}{lines}")
    remedy = found.remedies[FAILURE]
    assert remedy == Remedy(
        "container-sharded at train.py:20",
        "shard each module in `model.layers`",
        "fsdplint check train.py --select container-sharded --fix",
    )
    assert f"  rule:     {remedy.rule}\n" in _text(found, tmp_path)


def test_a_fix_that_is_declined_is_made_by_hand(verifier: Verifier, tmp_path: Path) -> None:
    lines = "model = nn.ModuleDict({'a': model})\nfully_shard(model)\n"
    found = _remedied(verifier, tmp_path, f"{HEAD}{lines}")
    assert found.remedies[FAILURE] == Remedy(
        "container-sharded at train.py:10",
        "by hand: `model` is not always a container; shard the modules in it by hand",
        "fsdplint explain container-sharded",
    )


def test_a_crash_that_no_rule_sees_has_its_cure(verifier: Verifier, tmp_path: Path) -> None:
    found = _remedied(
        verifier, tmp_path, 'raise RuntimeError("expected scalar type Half but found Float")'
    )
    assert list(found.remedies) == [FAILURE]
    remedy = found.remedies[FAILURE]
    assert (remedy.rule, remedy.command) == ("", "")
    assert "`torch.autocast`" in remedy.fix


def test_a_known_crash_keeps_its_rules(verifier: Verifier, tmp_path: Path) -> None:
    ran = "WorkNCCL() ran for 1 milliseconds before timing out."
    script = f'raise RuntimeError("Watchdog caught collective operation timeout: {ran}")'
    remedy = _remedied(verifier, tmp_path, script).remedies[FAILURE]
    assert remedy.rule.startswith("collective-under-rank-guard, ")
    assert "`TORCH_NCCL_DUMP_ON_TIMEOUT=1`" in remedy.fix
    assert remedy.command == "fsdplint explain collective-under-rank-guard"


def test_what_no_rule_knows_has_no_remedy(verifier: Verifier, tmp_path: Path) -> None:
    found = _remedied(verifier, tmp_path, f"{HEAD}1 / 0\n")
    assert dict(found.remedies) == {}


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--data', required=True)\nparser.parse_args()\n",
            "  train.py: error: the following arguments are required: --data",
        ),
        ("print('needs 8 GPUs')\nraise SystemExit\n", "  needs 8 GPUs"),
        ("import os\nprint('rank', os.environ['RANK'])\n", "  rank 1"),
    ],
    ids=["usage", "no error", "by rank"],
)
def test_what_a_script_printed_last_is_shown(
    verifier: Verifier, tmp_path: Path, lines: str, printed: str
) -> None:
    found = _remedied(verifier, tmp_path, lines)
    assert found.exit_code == 2
    sections = [s for s in _text(found, tmp_path).split("\n\n") if s.startswith("last output of ")]
    assert len(sections) == (2 if "RANK" in lines else 1)
    assert sections[-1].splitlines()[-1] == printed
    assert "last output of" not in _text(_remedied(verifier, tmp_path, EARLY), tmp_path)


def _made(clause: str, ranks: int, tmp_path: Path) -> Remedy:
    (tmp_path / "train.py").write_text("print('nothing to see')\n")
    verdict = Verdict(clause, "", Status.VIOLATED, "")
    made = tuple(RankSummary(rank, "steps", "", 1, "cpu", None, ()) for rank in range(ranks))
    run = Verification("train.py", (), "2.13.0", "cpu", ranks, 1.0, (verdict,), made)
    return with_remedies(run, tmp_path).remedies[clause]


def test_rules_that_find_nothing_are_named(tmp_path: Path) -> None:
    remedy = _made("forward", 2, tmp_path)
    assert remedy == Remedy(
        "direct-forward, custom-method-bypasses-hooks (not found in the code)",
        FIXES["forward"],
        "fsdplint explain direct-forward",
    )


def test_a_clause_without_a_rule_has_its_fix(tmp_path: Path) -> None:
    assert _made("loss", 2, tmp_path) == Remedy("", FIXES["loss"], "")
