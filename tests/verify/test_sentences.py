"""Sentences that are wrong of runs which look like others."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.report import render
from fsdplint.verify.verdict import Verdict, Verification

HEAD = """
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in "abc"))

def train(model, steps=2, work=lambda: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        work()
        loss(model(torch.randn(4, 8))).backward()
        optimizer.step()
        optimizer.zero_grad()

def loss(output):
    return output.square().mean()
"""


def text(result: Verification) -> str:
    return render(result, "text", Path(), color=False, width=100)


def clause(result: Verification, name: str) -> Verdict:
    return next(verdict for verdict in result.verdicts if verdict.clause == name)


@pytest.mark.parametrize(
    "lines",
    [
        "mesh = init_device_mesh('cpu', (2, 1), mesh_dim_names=('replicate', 'shard'))\n"
        "fully_shard(model, mesh=mesh)",
        "mesh = init_device_mesh('cpu', (1, 2), mesh_dim_names=('shard', 'parts'))\n"
        "for block in model:\n"
        "    plan = {'0': ColwiseParallel(), '2': RowwiseParallel()}\n"
        "    parallelize_module(block, mesh['parts'], plan)\n"
        "fully_shard(model, mesh=mesh['shard'])",
        "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), "
        "sharding_strategy=torch.distributed.fsdp.ShardingStrategy.NO_SHARD)",
    ],
    ids=["replicated", "tensor parallel", "FSDP1"],
)
def test_blocks_of_one_unit_over_one_rank_are_gathered_by_nobody(
    verifier: Verifier, lines: str
) -> None:
    result = verifier(f"{HEAD}{lines}\ntrain(model)\n")

    assert (result.violated, result.failure) == ((), "")
    blocks = clause(result, "blocks")
    assert (blocks.status.value, blocks.figures) == (
        "not exercised",
        "each unit spans one rank, so nothing is gathered",
    )


def test_parameters_of_fsdp1_with_their_own_names_are_divided(verifier: Verifier) -> None:
    result = verifier(
        f"{HEAD}model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), "
        "use_orig_params=True)\ntrain(model)\n"
    )

    assert "12 parameters: float32, sharded over 2 ranks with its unit's other parameters" in text(
        result
    )
    assert "whole on each rank" not in text(result)


def test_gradients_that_are_not_finite_are_gradients(verifier: Verifier) -> None:
    result = verifier(
        f"{HEAD}def loss(output):\n    return (output.sum() * 0).sqrt()\n"
        "for block in model:\n    fully_shard(block)\nfully_shard(model)\ntrain(model)\n"
    )

    assert clause(result, "parameters-change").figures == (
        "the gradients of 12 parameters are NaN or infinite: `0.0.weight`, `0.0.bias`, "
        "`0.2.weight`, `0.2.bias`, `1.0.weight`, `1.0.bias` and 6 more"
    )


def test_a_slow_run_does_not_hang(verifier: Verifier) -> None:
    """Rank 0 waits for rank 1, which computes."""
    work = (
        "from argparse import ArgumentParser\nparser = ArgumentParser()\n"
        "for name in ('--batch-size', '--n_layer', '--seed', '--model'):\n"
        "    parser.add_argument(name, default=name if name == '--model' else 8)\n"
        "parser.parse_args()\n"
        "done = []\ndef work():\n    done.append(1)\n"
        "    while dist.get_rank() == 1 and len(done) == 3:\n"
        "        sum(range(20_000))\n        time.sleep(0.01)\n"
    )
    result = verifier(
        f"import time\n{HEAD}{work}for block in model:\n    fully_shard(block)\n"
        "fully_shard(model)\ntrain(model, 4, work)\n",
        steps=None,
        timeout=20,
    )

    assert [rank.ended for rank in result.ranks] == ["waiting", "working"]
    first = result.failure.splitlines()[0]
    assert first.startswith("timed out after 2")
    assert " while rank 1 was still running, after 2 steps of " in first
    assert first.endswith(
        " s each; raise `--timeout` or lower `--steps`, or use `--shrink` for a smaller model; "
        "the largest sharded module has 432 elements; script options that set "
        "sizes: `--batch-size` (8), `--n_layer` (8)"
    )
    assert "hung" not in text(result)
    assert result.exit_code == 2
