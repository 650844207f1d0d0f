"""Warm ranks: as good as torchrun's, and alone with their own request."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from processes import gone, started_with
from verifier import Verifier

from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.warm_launcher import Warm

TRAINING = """
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
ALONE = """
import os
import sys

assert sys.argv[1:] == ["--name", "first"], sys.argv
assert "LEFT_BEHIND" not in os.environ
assert "left_behind" not in sys.modules
assert __name__ == "__main__"
assert sys.stdin.read() == ""
os.environ["LEFT_BEHIND"] = "1"
sys.modules["left_behind"] = sys
print("rank", os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"])
"""


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_rank_is_ended_after_the_steps_asked_for(verifier: Verifier, ranks: int) -> None:
    found = verifier(TRAINING, ranks=ranks, steps=2)
    assert [(rank.rank, rank.ended, rank.steps) for rank in found.ranks] == [
        (rank, "steps", 2) for rank in range(ranks)
    ]
    assert (found.world_size, found.failure) == (ranks, "")


def test_a_run_knows_nothing_of_the_one_before(verifier: Verifier) -> None:
    for _ in range(2):
        found = verifier(ALONE, arguments=("--name", "first"))
        assert [(rank.ended, rank.output) for rank in found.ranks] == [
            ("script", "rank 0 0 2"),
            ("script", "rank 1 1 2"),
        ]


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    with Warm() as warm:
        os.kill(warm.pid, signal.SIGKILL)
        found = verify(Request("train.py", device="cpu"), tmp_path, launcher=warm)
    assert found.failure == "no rank started\nthe process that starts ranks died"
    assert found.exit_code == 2


def test_leaving_ends_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", str(tmp_path))
    (tmp_path / "train.py").write_text("while True:\n    pass\n")
    seen: list[int] = []

    class Enough(Exception):
        pass

    def tell(text: str) -> None:
        if text.startswith("2 ranks"):
            seen.extend(started_with(f"MARK={tmp_path}"))
            raise Enough

    with pytest.raises(Enough), Warm() as warm:
        verify(Request("train.py", device="cpu"), tmp_path, launcher=warm, progress=tell)
    assert len(seen) == 4  # a fork shows its server's environment, as the ranks' keeper does
    assert gone(f"MARK={tmp_path}")


def test_preparing_an_optimizers_state_is_no_step(verifier: Verifier) -> None:
    """As scripts do that resume from a distributed checkpoint."""
    found = verifier(
        TRAINING.replace(
            "while True:",
            "from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict\n"
            "get_optimizer_state_dict(model, optimizer)\nprint('prepared')\nwhile True:",
        ),
        steps=1,
    )
    assert [(rank.ended, rank.steps, rank.output) for rank in found.ranks] == [
        ("steps", 1, "prepared")
    ] * 2
    assert [v.status.value for v in found.verdicts if v.clause == "gradients"] == ["confirmed"]


def test_devices_hidden_from_all_ranks_are_not_shared(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = verifier(
        "import os, torch, torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    )
    assert [v.figures for v in found.verdicts if v.clause == "device-per-rank"] == [
        "nccl, 2 ranks on cuda:0, cuda:1"
    ]
