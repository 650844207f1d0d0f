"""What a model gets once it is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.rules.module_added_after_sharding import additions

NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

model = Net()
"""
SHARD = "fully_shard(model.body)\nfully_shard(model)\n"
TRAIN = "optimizer = torch.optim.SGD(model.parameters())\nmodel(x).backward()\noptimizer.step()\n"
ADD = "model.new = nn.Linear(8, 8)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHARD + ADD + TRAIN, True),
        (ADD + SHARD + TRAIN, False),
        ("fully_shard(model.body)\n" + ADD + "fully_shard(model)\n" + TRAIN, False),
        (SHARD + ADD + "fully_shard(model.new)\n" + TRAIN, False),
        (SHARD + "model.new = fully_shard(nn.Linear(8, 8))\n" + TRAIN, False),
        (SHARD + "model.new = nn.Linear(8, 8).requires_grad_(False)\n" + TRAIN, False),
        (SHARD + "model.new = nn.Parameter(torch.ones(8))\n" + TRAIN, True),
        (SHARD + "model.new = nn.Parameter(torch.ones(8), requires_grad=False)\n" + TRAIN, False),
        (SHARD + "model.body.new = nn.Linear(8, 8)\n" + TRAIN, True),
        (SHARD + "setattr(model, 'new', nn.Sequential(nn.Linear(8, 8)))\n" + TRAIN, True),
        (SHARD + "model.new = nn.Dropout()\n" + TRAIN, False),
        (SHARD + "model.new = unknown()\n" + TRAIN, False),
        (SHARD + "model.head = model.head.to(x)\n" + TRAIN, False),
        (SHARD + ADD, False),
        (SHARD + TRAIN + ADD, False),
        (SHARD + ADD + "prepare(model)\n" + TRAIN, False),
        (SHARD + ADD.replace("nn.Linear(8, 8)", "nn.parallel.DataParallel(x)") + TRAIN, False),
        ("FSDP(model)\n" + ADD + TRAIN, False),
        ("fully_shard(model.body)\n" + ADD + TRAIN, False),
    ],
)
def test_additions(tmp_path: Path, text: str, expected: bool) -> None:
    assert len(list(additions(script(tmp_path, NET + text)))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHARD + "model = peft.get_peft_model(model, config)\n" + TRAIN, True),
        ("model = peft.get_peft_model(model, config)\n" + SHARD + TRAIN, False),
        (SHARD + "model = peft.get_peft_model(model, config)\nfully_shard(model)\n" + TRAIN, False),
        (SHARD + "model = peft.get_peft_model(model, config)\n", False),
    ],
)
def test_adapters(tmp_path: Path, text: str, expected: bool) -> None:
    found = script(tmp_path, "import peft\n" + NET + text)
    assert len(list(additions(found))) == expected
