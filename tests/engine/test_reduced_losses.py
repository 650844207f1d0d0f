"""Losses that are the mean over the ranks before their backward."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.rules.all_reduced_loss_before_backward import reduced_losses

MODEL = "model = fully_shard(nn.Linear(8, 8))\nloss = model(x).mean()\n"
REDUCE = "dist.all_reduce(loss)\n"
DIVIDE = "loss /= dist.get_world_size()\n"


@pytest.mark.parametrize(
    "lines",
    [
        REDUCE + DIVIDE + "loss.backward()",
        DIVIDE + REDUCE + "loss.backward()",
        REDUCE + "loss.div_(dist.get_world_size())\nloss.backward()",
        REDUCE + "mean = loss.div(dist.get_world_size())\nmean.backward()",
        REDUCE + "n = dist.get_world_size() if many else 1\n(loss / n / 4).backward()",
        REDUCE + DIVIDE + "accelerator.backward(loss)",
        "with torch.no_grad():\n    " + REDUCE + DIVIDE + "loss.backward()",
    ],
)
def test_a_loss_is_followed_through_its_divisions(tmp_path: Path, lines: str) -> None:
    assert len(list(reduced_losses(script(tmp_path, MODEL + lines)))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        REDUCE + "loss /= n\nloss.backward()",
        REDUCE + "mean = loss / dist.get_world_size()\nloss.backward()",
        "loss.backward()\n" + REDUCE + DIVIDE,
        "if rank_zero_only(x):\n    " + REDUCE + DIVIDE + "else:\n    loss.backward()",
        "it = loss.detach()\ndist.all_reduce(it)\nit /= dist.get_world_size()\nloss.backward()",
        "dist.all_reduce(loss, op=dist.ReduceOp.MAX)\n" + DIVIDE + "loss.backward()",
        "dist.all_reduce(loss, op=dist.ReduceOp.AVG)\nloss.backward()",
        REDUCE + "with torch.no_grad():\n    " + DIVIDE + "loss.backward()",
        "dist.all_reduce(loss, group=group)\n" + DIVIDE + "loss.backward()",
        "model.set_gradient_divide_factor(1)\n" + REDUCE + DIVIDE + "loss.backward()",
    ],
)
def test_what_is_not_the_mean_of_all_ranks_to_autograd_is_left(tmp_path: Path, lines: str) -> None:
    assert not list(reduced_losses(script(tmp_path, MODEL + lines)))


@pytest.mark.parametrize(("backends", "found"), [(["gloo"], 1), (["nccl"], 0), (["gloo", ""], 0)])
def test_the_mean_of_the_collective_counts_with_gloo(
    tmp_path: Path, backends: list[str], found: int
) -> None:
    groups = "".join(f"dist.init_process_group({name!r})\n" for name in backends)
    lines = "dist.all_reduce(loss, op=dist.ReduceOp.AVG)\nloss.backward()"
    assert len(list(reduced_losses(script(tmp_path, groups + MODEL + lines)))) == found


def test_a_model_has_to_be_sharded(tmp_path: Path) -> None:
    lines = "loss = nn.Linear(8, 8)(x).mean()\n" + REDUCE + DIVIDE + "loss.backward()"
    assert not list(reduced_losses(script(tmp_path, lines)))
