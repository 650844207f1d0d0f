from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Safety

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.cuda.amp import GradScaler
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

{before}
model = FSDP(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler({arguments})

for step, batch in enumerate(torch.randn(10, 4, 8)):
    loss = model(batch).square().mean()
    scaler.scale(loss).backward()
    {step}
    scaler.update()
"""
STEP = "scaler.step(optimizer)"


def fixed(step: str = STEP, before: str = "", arguments: str = "") -> tuple[Safety, str] | str:
    text = PROGRAM.format(step=step, before=before, arguments=arguments)
    (finding,) = (f for f in check_text(text) if f.rule == "grad-scaler-on-fsdp1")
    if finding.fix is None:
        return finding.fix_declined
    return finding.fix.safety, "".join(edit.text for edit in finding.fix.edits)


@pytest.mark.parametrize(
    ("step", "arguments", "expected"),
    [
        (STEP, "", "ShardedGradScaler"),
        (STEP, "1024.0, 2.0, 0.5", "ShardedGradScalerinit_scale=growth_factor=backoff_factor="),
        ("scaler.unscale_(optimizer)\n    scaler.step(optimizer)", "", "ShardedGradScaler"),
        ("if step % 2:\n        scaler.step(optimizer)", "", "ShardedGradScaler"),
    ],
)
def test_a_scaler_that_is_only_called_is_exchanged(
    step: str, arguments: str, expected: str
) -> None:
    found = fixed(step, arguments=arguments)
    assert found[0] is Safety.SAFE and found[1].startswith(expected)


@pytest.mark.parametrize(
    "step",
    [
        "dist.all_reduce(found_inf)\n    scaler.step(optimizer)",
        "if torch.isfinite(loss):\n        scaler.step(optimizer)",
        "if loss > 3:\n        scaler.unscale_(optimizer)\n    scaler.step(optimizer)",
        "assert isinstance(scaler, GradScaler)\n    scaler.step(optimizer)",
        "assert type(scaler) is torch.amp.GradScaler\n    scaler.step(optimizer)",
    ],
)
def test_a_step_that_may_be_seen_or_left_out_is_no_safe_place(step: str) -> None:
    found = fixed(step)
    assert found[0] is Safety.UNSAFE


@pytest.mark.parametrize(
    "before",
    [
        "class Own(GradScaler):\n    pass\n",
        "def save(scaler: GradScaler):\n    pass\n",
        "def save(scaler: 'GradScaler'):\n    pass\n",
    ],
)
def test_a_class_that_is_named_elsewhere_is_no_safe_fix(before: str) -> None:
    assert fixed(before=before)[0] is Safety.UNSAFE


def test_an_argument_that_no_scaler_has_is_left() -> None:
    assert (
        fixed(arguments="scale=3")
        == "`GradScaler(scale=3)` does not match torch's signature; use `ShardedGradScaler` by hand"
    )
