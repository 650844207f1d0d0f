"""Fixes that a run without sharding would notice: unsafe where a program may make such a run."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Safety

_HEAD = """\
import os

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
"""
_ALWAYS, _SOMETIMES = "if True:\n", 'if "RANK" in os.environ:\n'


def _safeties(code: str, program: str) -> list[Safety]:
    found = [each for each in check_text(_HEAD + program) if each.code == code]
    return [each.fix.safety for each in found if each.fix]


@pytest.mark.parametrize(("when", "safety"), [(_ALWAYS, Safety.SAFE), (_SOMETIMES, Safety.UNSAFE)])
def test_an_optimizer_that_is_no_longer_fused(when: str, safety: Safety) -> None:
    shard = f"{when}    fully_shard(model, ignored_params=set(model[0].parameters()))\n"
    build = "optimizer = torch.optim.AdamW(model.parameters(), fused=True)\noptimizer.step()\n"
    assert _safeties("FSD316", shard + build) == [safety]


@pytest.mark.parametrize(("when", "safety"), [(_ALWAYS, Safety.SAFE), (_SOMETIMES, Safety.UNSAFE)])
def test_results_that_are_no_longer_inference_tensors(when: str, safety: Safety) -> None:
    shard = f"{when}    fully_shard(model)\n"
    forwards = (
        "batch = torch.ones(2, 8)\nwith torch.inference_mode():\n    model(batch)\n"
        "model(batch).sum().backward()\n"
    )
    assert _safeties("FSD312", shard + forwards) == [safety]
