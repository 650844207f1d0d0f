"""Fixes that take FSDP1's wrapper, or a container, for what it is: safe only if it always is."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Safety

_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

"""
_SHARD = "def shard(model):\n    fully_shard(model)\n    return model\n"


@pytest.mark.parametrize(
    ("program", "safety"),
    [
        ("model = Net()\nfully_shard(model)\nmodel.module.x\n", Safety.SAFE),
        (f"{_SHARD}model = shard(Net())\nmodel.module.x\n", Safety.SAFE),
        (
            f"{_SHARD}def show(model):\n    model.module.x\nshow(shard(Net()))\nshow(DDP(Net()))\n",
            Safety.UNSAFE,
        ),
        (
            f"{_SHARD}def show(model):\n    model.module.x\nshow(shard(Net()))\nshow(build())\n",
            Safety.UNSAFE,
        ),
        (
            f"{_SHARD}def clip(model):\n    model.clip_grad_norm_(1.0)\n"
            "clip(shard(Net()))\nclip(FSDP(Net()))\n",
            Safety.UNSAFE,
        ),
        (
            f"{_SHARD}def clip(model):\n    model.clip_grad_norm_(1.0)\nclip(shard(Net()))\n",
            Safety.SAFE,
        ),
    ],
)
def test_a_model_that_may_be_wrapped(program: str, safety: Safety) -> None:
    found = [each for each in check_text(_HEAD + program) if each.code == "FSD702"]
    assert [each.fix.safety for each in found if each.fix] == [safety]


@pytest.mark.parametrize(
    ("program", "safety"),
    [
        ("model = Net()\nfully_shard(model.layers)\n", Safety.SAFE),
        (
            "def shard(part):\n    fully_shard(part)\n"
            "shard(nn.ModuleList([Net()]))\nshard(Net())\n",
            Safety.UNSAFE,
        ),
        ("def shard(part):\n    fully_shard(part)\nshard(nn.ModuleList([Net()]))\n", Safety.SAFE),
    ],
)
def test_what_may_be_no_container(program: str, safety: Safety) -> None:
    found = [each for each in check_text(_HEAD + program) if each.code == "FSD207"]
    assert [each.fix.safety for each in found if each.fix] == [safety]
