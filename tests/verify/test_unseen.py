"""A run that ends well and shows nothing is no pass: it exits with 2 and says what was not seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.report import render
from fsdplint.verify.verdict import Verification

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))

def build():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
"""
FAKE = """
with FakeTensorMode():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
"""
NO_PARAMETER = """
class Reader(nn.Module):
    def forward(self, x):
        return x

model = fully_shard(Reader(), mesh=mesh)
model(torch.ones(2))
"""
NO_STEP = """
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
"""


def text(result: Verification) -> str:
    return render(result, "text", Path(), color=False, width=100)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            FAKE,
            "the parameters at the optimizer's step could not be observed: "
            "they are fake tensors without values",
        ),
        (NO_PARAMETER, "nothing to verify: no parameter of an FSDP unit was seen"),
        (
            "build()",
            "nothing to verify: the script ended before a forward, an optimizer step or a save",
        ),
        (NO_STEP, "nothing to verify: backward ran, but no optimizer stepped"),
    ],
    ids=["fake", "no parameter", "nothing runs", "no step"],
)
def test_what_was_not_seen_is_said(verifier: Verifier, lines: str, reason: str) -> None:
    result = verifier(f"{HEAD}{lines}\n")

    assert (result.violated, result.failure, result.exit_code) == ((), reason, 2)
    assert "no sharding" not in text(result)
    assert text(result).rstrip().endswith("(exit 2)")


def test_an_evaluation_needs_no_step(verifier: Verifier) -> None:
    result = verifier(f"{HEAD}with torch.no_grad():\n    build()(torch.randn(4, 8))\n")

    assert (result.failure, result.exit_code) == ("", 0)
