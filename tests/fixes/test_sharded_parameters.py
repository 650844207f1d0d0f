"""Fixes of rules on the parameters that FSDP leaves behind, and why they are declined."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding

NET = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.first(x))


"""
SHARDED = """\
model = Net().cuda()
fully_shard(model.first)
fully_shard(model.head)
fully_shard(model)
"""
FLAT = "model = FullyShardedDataParallel(Net(){}, device_id=0{})\n"
DECAY = """\
groups = [
    {"params": [p for n, p in model.named_parameters() if n.endswith("bias")], "weight_decay": 0},
    {"params": [p for p in model.parameters()]},
]
optimizer = torch.optim.SGD(groups[0]["params"])
"""
LONE = """\
state = torch.load("model.pt") if dist.get_rank() == 0 else {}
options = StateDictOptions(%s)
set_model_state_dict(model, state, options=options)
"""


def found(rule: str, program: str) -> Finding:
    findings = [each for each in check_text(NET + program) if each.rule == rule]
    assert findings, check_text(NET + program)
    return findings[0]


@pytest.mark.parametrize(
    ("rule", "program", "reason"),
    [
        (
            "dtensor-data-assigned",
            f"{SHARDED}model.head.bias.data = zeros = torch.zeros(8)\n",
            "the value is assigned to several targets",
        ),
        (
            "dtensor-data-assigned",
            f"{SHARDED}model.head.bias.data = (\n    torch.zeros(8)  # all\n)\n",
            "there is a comment in the statement",
        ),
        (
            "gradient-hook-never-runs",
            f"model = Net()\nheld = list(model.parameters())\n{SHARDED[21:]}for p in held:\n"
            "    p.register_post_accumulate_grad_hook(print)\n",
            "the parameters were collected before the sharding; collect them after it",
        ),
        (
            "gradient-hook-never-runs",
            f"{FLAT.format('', ', use_orig_params=True')}for p in model.parameters():\n"
            "    p.register_post_accumulate_grad_hook(print)\n",
            "FSDP1 with `use_orig_params=True` runs no hook of a parameter; change "
            "the gradients after `backward()`",
        ),
        (
            "parameters-grouped-after-flattening",
            FLAT.format("", "  # one\n") + DECAY,
            "a comment follows the last argument; pass `use_orig_params=True` by hand",
        ),
        (
            "rank0-state-loaded-by-all",
            SHARDED + LONE % "**{'full_state_dict': True}",
            "the arguments of `StateDictOptions` are not all written out; pass "
            "`broadcast_from_rank0=True` by hand",
        ),
    ],
)
def test_what_a_fix_would_break_is_declined(rule: str, program: str, reason: str) -> None:
    assert found(rule, program).fix_declined == reason


@pytest.mark.parametrize(
    ("rule", "program", "edited"),
    [
        (
            "rank0-state-loaded-by-all",
            SHARDED + LONE % "full_state_dict=True",
            ", broadcast_from_rank0=True",
        ),
        (
            "rank0-state-loaded-by-all",
            SHARDED + LONE % "full_state_dict=True, broadcast_from_rank0=False",
            "True",
        ),
        (
            "parameters-grouped-after-flattening",
            FLAT.format("", "") + DECAY,
            ", use_orig_params=True",
        ),
        (
            "parameters-grouped-after-flattening",
            FLAT.format("", ", use_orig_params=False") + DECAY,
            "True",
        ),
    ],
)
def test_an_argument_is_given_or_changed(rule: str, program: str, edited: str) -> None:
    fix = found(rule, program).fix
    assert fix is not None and [edit.text for edit in fix.edits] == [edited]
