"""Messages about the training step that are exact in cases that no page shows."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding

UNIT = """
from torch import nn, ones
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def encode(self, x):
        return self.linear(x)


model = fully_shard(Net())
getattr(model, "{method}")(ones(4, 8))
"""
SWITCH = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
model = fully_shard(nn.Linear(8, 8), mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for batch in torch.randn(100, 8, 8):
    model.{switch}(False)
    model(batch).mean().backward()
    optimizer.step()
"""


def finding(text: str, rule: str) -> Finding:
    (found,) = (each for each in check_text(text, "train.py") if each.rule == rule)
    return found


@pytest.mark.parametrize(
    ("method", "rule", "harm"),
    [
        ("forward", "direct-forward", "the forward crashes, or leaves every unit gathered"),
        ("encode", "custom-method-bypasses-hooks", "it crashes on the local shards"),
    ],
)
def test_a_method_that_getattr_looks_up(method: str, rule: str, harm: str) -> None:
    found = finding(UNIT.format(method=method), rule)
    assert found.message == (
        f'`getattr(model, "{method}")` bypasses the hooks that all-gather the parameters of its '
        f"module (sharded on line 15): {harm}"
    )


@pytest.mark.parametrize(
    ("switch", "off", "done"),
    [
        ("set_requires_gradient_sync", "gradient reduction", "reduced"),
        ("set_requires_all_reduce", "the all-reduce", "all-reduced"),
    ],
)
def test_which_reduction_is_off(switch: str, off: str, done: str) -> None:
    found = finding(SWITCH.format(switch=switch), "gradient-sync-left-off")
    assert found.message == (
        f"`model.{switch}(False)` is in effect in every backward: no gradient is {done}, and the "
        "step on line 13 changes nothing"
    )
    assert found.label == f"turns {off} off here"
    assert f"gradients are not {done} here" in [each.note for each in found.evidence]
