"""Messages that depend on a condition of the program, in cases that no page shows."""

from __future__ import annotations

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange

POLICY = """
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, MixedPrecision
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

{call}
"""


def finding(text: str, rule: str, torch: str = "") -> Finding:
    releases = TorchRange.parse(torch) if torch else EVERY_RELEASE
    (found,) = (each for each in check_text(text, "train.py", releases) if each.rule == rule)
    return found


@pytest.mark.parametrize(
    ("call", "torch", "harm"),
    [
        ("fully_shard(nn.Linear(8, 8), mp_policy=MixedPrecisionPolicy)", "", "nothing is cast"),
        (
            "fully_shard(nn.Linear(8, 8), mp_policy=MixedPrecisionPolicy)",
            ">=2.15",
            "it fails when the model is sharded",
        ),
        ("fully_shard(nn.Linear(8, 8), mp_policy=MixedPrecision)", "", "it fails in the forward"),
        ("fully_shard(nn.Linear(8, 8), offload_policy=CPUOffload)", "", "nothing is offloaded"),
        (
            "FSDP(nn.Linear(8, 8), mixed_precision=MixedPrecisionPolicy)",
            "",
            "it fails when the model is wrapped",
        ),
        ("FSDP(nn.Linear(8, 8), mixed_precision=MixedPrecision)", "", "nothing is cast"),
    ],
)
def test_what_a_class_for_a_policy_does(call: str, torch: str, harm: str) -> None:
    found = finding(POLICY.format(call=call), "fsdp1-policy-object", torch)
    assert f": {harm}" in found.message


def test_the_class_of_an_offload_becomes_one_that_offloads() -> None:
    text = POLICY.format(call="FSDP(nn.Linear(8, 8), cpu_offload=CPUOffload)")
    fix = finding(text, "fsdp1-policy-object").fix
    assert fix is not None
    assert [edit.text for edit in fix.edits] == ["(offload_params=True)"]
