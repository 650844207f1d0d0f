"""Notes beside a verdict: means over different numbers of targets, steps that are too small."""

from __future__ import annotations

import pytest
from verifier import Verifier

SCRIPT = """
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 5).to({dtype}))
optimizer = torch.optim.AdamW(model.parameters(), lr={rate})
for step in range(3):
    optimizer.zero_grad()
    target = torch.zeros(6, dtype=torch.long)
    target[: {masked}] = -100
    logits = model(torch.randn(6, 8, dtype={dtype}))
    {loss}.backward()
    optimizer.step()
"""
MEAN = "nn.CrossEntropyLoss()(logits, target)"
SUM = "(F.cross_entropy(logits, target, reduction='sum') / 9)"
APART = "; each rank averages over its own targets (4 to 6), but FSDP weights all ranks equally"
STILL = (
    " of the elements with a gradient did not change: their steps are too small for a 16-bit dtype"
)


def said(
    verifier: Verifier, clause: str, *, dtype: str = "float32", rate: float = 0.1, **given: str
) -> str:
    script = SCRIPT.format(dtype=f"torch.{dtype}", rate=rate, **given)
    found = verifier(script, steps=None)
    assert found.failure == ""
    (verdict,) = (verdict for verdict in found.verdicts if verdict.clause == clause)
    return verdict.figures


@pytest.mark.parametrize(
    ("masked", "loss", "told"),
    [
        ("2 * (step == 1) * dist.get_rank()", MEAN, APART),
        ("2 * (step == 1) * dist.get_rank()", SUM, ""),
        ("2 * (step == 1) * dist.get_rank()", f"({MEAN} * (target >= 0).sum() / 9)", ""),
        ("2", MEAN, ""),
    ],
)
def test_means_over_other_numbers_of_targets_are_told(
    verifier: Verifier, masked: str, loss: str, told: str
) -> None:
    figures = said(verifier, "loss", masked=masked, loss=loss)
    assert figures.partition(";")[0].startswith("6 losses between ")
    assert figures.removeprefix(figures.partition(";")[0]) == told


@pytest.mark.parametrize(
    ("dtype", "rate", "told"),
    [("bfloat16", 1e-6, True), ("bfloat16", 0.1, False), ("float32", 1e-6, False)],
)
def test_steps_below_what_two_bytes_resolve_are_told(
    verifier: Verifier, dtype: str, rate: float, told: bool
) -> None:
    figures = said(verifier, "parameters-change", dtype=dtype, rate=rate, masked="1", loss=MEAN)
    assert figures.endswith(STILL) == told, figures
