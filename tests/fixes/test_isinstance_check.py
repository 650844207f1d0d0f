from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Safety

PROGRAM = """\
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x)


{before}
model = nn.Sequential(*[Block() for _ in range(4)])
for block in model:
    fully_shard(block)
fully_shard(model)
apply_activation_checkpointing(model, check_fn={check})
"""


def safety(check: str, before: str = "") -> Safety | str:
    text = PROGRAM.format(check=check, before=before)
    (finding,) = (f for f in check_text(text) if f.rule == "checkpointing-matches-nothing")
    return finding.fix.safety if finding.fix else finding.fix_declined


@pytest.mark.parametrize(
    "check",
    [
        "lambda m: type(m) is Block",
        "lambda m: m.__class__ == Block",
        "lambda m: type(m) in (Block,)",
    ],
)
def test_a_class_without_subclasses_is_asked_for(check: str) -> None:
    assert safety(check) is Safety.SAFE


@pytest.mark.parametrize(
    ("check", "before"),
    [
        ("lambda m: type(m) is Block", "class Last(Block):\n    pass\n"),
        ("lambda m: type(m) is Block", "Base = Block\n\n\nclass Last(Base):\n    pass\n"),
        ("lambda m: type(m).__name__ == 'Block'", ""),
        # Other code may ask whether a block is sharded yet.
        ("is_block", "def is_block(m):\n    return type(m) is Block\n"),
    ],
)
def test_more_may_be_asked_for_than_before(check: str, before: str) -> None:
    assert safety(check, before) is Safety.UNSAFE


def test_another_isinstance_is_not_called() -> None:
    assert safety("lambda m: type(m) is Block", "def isinstance(a, b): return True\n") == (
        "`isinstance` means something else in this file; make the change by hand"
    )
