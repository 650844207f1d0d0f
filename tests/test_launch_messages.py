"""Messages about launch and meshes that name what a program does, in cases that no page shows."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding

OPTION = """
import argparse

import torch
import torch.distributed as dist
from gpt import GPT
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument({option})
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group("nccl")
model = fully_shard(GPT())
dist.destroy_process_group()
"""
MESH = """
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cuda", {shape}, mesh_dim_names={names})
fully_shard(nn.Linear(8, 8))
"""


def finding(text: str, rule: str) -> Finding:
    (found,) = (each for each in check_text(text, "train.py") if each.rule == rule)
    return found


@pytest.mark.parametrize(
    ("option", "harm"),
    [
        (
            '"--local-rank", type=int, default=0',
            "`--local-rank`: `args.local_rank` keeps its default, so all processes of a node get "
            "the same device",
        ),
        (
            '"--local_rank", type=int, required=True',
            "`--local_rank`: every process exits with a usage error",
        ),
    ],
)
def test_an_option_that_torchrun_does_not_pass(option: str, harm: str) -> None:
    found = finding(OPTION.format(option=option), "local-rank-argument")
    says = "torchrun sets the `LOCAL_RANK` environment variable but does not pass "
    assert found.message == says + harm


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        (
            "(8, 2)",
            "'dp'",
            "the string `'dp'` names the mesh dimensions `d` and `p`, by its letters: none is "
            "called `dp`",
        ),
        (
            "(8, 2)",
            "'pp'",
            "`init_device_mesh` raises an error: it takes each letter of the string `'pp'` for a "
            "name, and these do not fit a mesh of 2 dimensions",
        ),
        (
            "(8,)",
            "'dp'",
            "`init_device_mesh` raises an error: it takes each letter of the string `'dp'` for a "
            "name, and these do not fit a mesh of 1 dimension",
        ),
    ],
)
def test_names_of_a_mesh_that_are_one_string(shape: str, names: str, message: str) -> None:
    found = finding(MESH.format(shape=shape, names=names), "mesh-arguments")
    assert found.message == message
