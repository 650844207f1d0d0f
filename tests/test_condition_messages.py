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


TIED = """
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 100, bias=False)
        self.head.weight = self.embed.weight


model = Net()
fully_shard(model.embed)
fully_shard(model)
"""


@pytest.mark.parametrize(
    ("torch", "harm"),
    [
        ("", "the first forward crashes"),
        (">=2.12", "the first forward crashes"),
        (">=2.6", "the first forward crashes, or before torch 2.12 the tie is lost"),
        (">=2.6,<2.12", "the tie is lost"),
    ],
)
def test_what_a_tie_across_units_does(torch: str, harm: str) -> None:
    found = finding(TIED, "tied-weights-in-different-groups", torch)
    assert found.message.endswith(f": {harm}")


LOAD = """
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import fully_shard

model = fully_shard(nn.Linear(8, 8))
model.load_state_dict({read})
"""


@pytest.mark.parametrize(
    ("read", "harm"),
    [
        ('torch.load("a.pt")', 'crashes if `torch.load("a.pt")` returns plain tensors'),
        ('load_file("a.st")', 'crashes on the plain tensors that `load_file("a.st")` returns'),
    ],
)
def test_which_files_surely_hold_plain_tensors(read: str, harm: str) -> None:
    found = finding(LOAD.format(read=read), "full-state-dict-into-sharded-model")
    assert found.message.startswith(f"`model.load_state_dict` {harm}: the model's parameters are ")


SPLIT = """
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.last = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


model = Net()
for block in model.blocks:
    fully_shard(block{blocks})
fully_shard(model{root})
"""
LOW = ", mp_policy=MixedPrecisionPolicy(torch.bfloat16)"


@pytest.mark.parametrize(
    ("blocks", "root", "said"),
    [
        (
            LOW,
            "",
            "the root's `last` computes in the dtype of its parameters, but the modules that",
        ),
        ("", LOW, "the root's `first` computes in bfloat16, but the modules that"),
    ],
)
def test_where_two_precisions_meet(blocks: str, root: str, said: str) -> None:
    found = finding(SPLIT.format(blocks=blocks, root=root), "policy-missing-on-root")
    assert found.message.startswith(f"the forward crashes on mixed dtypes: {said}")


HOOK = """
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

model = nn.Linear(8, 8)
for parameter in model.parameters():
    parameter.register_hook(print)
model = {wrap}
model(torch.ones(2, 8)).mean().backward()
"""


@pytest.mark.parametrize(
    ("wrap", "why", "reason"),
    [
        ("fully_shard(model)", "it is on parameters that", "FSDP2 runs no hook before it reduces"),
        (
            "FSDP(model)",
            "it is on parameters that",
            "the hook would get one flat gradient for each",
        ),
        (
            "FSDP(model, use_orig_params=True)",
            "the backward does not reach the original parameters that",
            "FSDP1 with `use_orig_params=True` runs no hook of a parameter",
        ),
    ],
)
def test_why_a_hook_never_runs(wrap: str, why: str, reason: str) -> None:
    found = finding(HOOK.format(wrap=wrap), "gradient-hook-never-runs")
    assert found.message.startswith(f"this hook never runs: {why}")
    assert found.fix_declined.startswith(reason)


GROUPS = """
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Linear(8, 8))
{use}
"""


@pytest.mark.parametrize(
    ("use", "outcome"),
    [
        (
            "torch.optim.SGD([p for p in model.parameters() if p.ndim > 1])",
            "it selects all of them or none",
        ),
        (
            "for p in model.parameters():\n    p.requires_grad = p.ndim > 1",
            "it freezes all of them or none",
        ),
    ],
)
def test_what_a_test_of_flat_parameters_decides(use: str, outcome: str) -> None:
    found = finding(GROUPS.format(use=use), "parameters-grouped-after-flattening")
    assert f"has the same result for every parameter, so {outcome}: " in found.message


ROLES = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
model = fully_shard(nn.Linear(8, 8))
if {test}:
    model(torch.ones(2, 8))
"""


@pytest.mark.parametrize(
    ("test", "who"),
    [
        ("dist.get_rank() == 0", "only rank 0 gets here: it hangs, waiting for the others"),
        ("dist.get_rank() != 0", "every rank but 0 gets here: they hang, waiting for it"),
        ("dist.get_rank() < 2", "only some ranks get here: they hang, waiting for the others"),
    ],
)
def test_which_ranks_hang(test: str, who: str) -> None:
    found = finding(ROLES.format(test=test), "collective-under-rank-guard")
    assert found.message == f"`model()` needs every rank, but {who}"


def test_the_model_in_a_list_that_join_gets() -> None:
    text = """
from torch import nn
from torch.distributed.algorithms import Join
from torch.distributed.fsdp import fully_shard

models = [fully_shard(nn.Linear(4, 4))]
with Join(models):
    pass
"""
    found = finding(text, "join-with-fsdp")
    assert "the `join_hook` of the model in `models`, which FSDP2 does not have" in found.message
