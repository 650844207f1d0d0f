"""Warm ranks: as good as torchrun's, and alone with their own request."""

from __future__ import annotations

import pytest
from verifier import Verifier

TRAINING = """
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_rank_is_ended_after_the_steps_asked_for(verifier: Verifier, ranks: int) -> None:
    found = verifier(TRAINING, ranks=ranks, steps=2)
    assert [(rank.rank, rank.ended, rank.steps) for rank in found.ranks] == [
        (rank, "steps", 2) for rank in range(ranks)
    ]
    assert (found.world_size, found.failure) == (ranks, "")
