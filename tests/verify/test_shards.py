"""The clause `shards`: collectives of the script on parts of parameters and of their gradients."""

from __future__ import annotations

import pytest
from verifier import Verifier

from fsdplint.verify.verdict import Status, Verdict

SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 6))
{sharding}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().sum()
    loss.backward()
    {before}
    optimizer.step()
"""
FSDP1 = "model = FSDP(model, device_id=torch.device('cpu'))"
ORIGINAL = """
model = FSDP(
    nn.Linear(4, 4, bias=False), device_id=torch.device("cpu"), use_orig_params=True
)
"""
FSDP2 = "fully_shard(model)"
HSDP = """
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
fully_shard(model, mesh=mesh)
"""
AVERAGE = "[dist.all_reduce(p.grad) for p in model.parameters() if p.grad is not None]"
AVERAGE_LOCALS = "[dist.all_reduce(p.grad.to_local(){}) for p in model.parameters()]"
COPY = "[dist.broadcast(p.to_local(), 0) for p in model.parameters()]"


def judged(verifier: Verifier, sharding: str, before: str, ranks: int = 2) -> Verdict:
    found = verifier(SCRIPT.format(sharding=sharding, before=before), steps=None, ranks=ranks)
    assert found.failure == ""
    (verdict,) = (verdict for verdict in found.verdicts if verdict.clause == "shards")
    return verdict


@pytest.mark.parametrize(
    "sharding, before, said",
    [
        (FSDP1, AVERAGE, "`all_reduce` combines gradient shards of 1 parameter"),
        (ORIGINAL, AVERAGE, "`all_reduce` combines gradient shards of 1 parameter"),
        (FSDP2, AVERAGE_LOCALS.format(""), "`all_reduce` combines gradient shards of 4 parameters"),
        (FSDP2, COPY, "`broadcast` overwrites shards of 4 parameters"),
    ],
)
def test_different_parts_are_mixed(
    verifier: Verifier, sharding: str, before: str, said: str
) -> None:
    verdict = judged(verifier, sharding, before)
    assert verdict.status is Status.VIOLATED
    assert verdict.figures.startswith(f"{said}, but ranks 0, 1 hold different shards: ")
    assert [place.path for place in verdict.places] == ["train.py"]


GATHERED = """with FSDP.summon_full_params(model, with_grads=True):
        [dist.broadcast(p, 0) for p in model.parameters()]
        [dist.all_reduce(p.grad) for p in model.parameters()]"""
MODEL_GOES = """
import gc, weakref
class Other(nn.Linear):
    pass
other = fully_shard(Other(4, 4))
other(torch.randn(2, 4)).sum().backward()
dist.all_reduce(torch.ones(1))
gone = weakref.ref(other)
del other
gc.collect()
assert gone() is None
"""


def test_what_fsdp1_has_gathered_is_nobodys_part(verifier: Verifier) -> None:
    sharding = "model = FSDP(model, device_id=torch.device('cpu'), use_orig_params=True)"
    assert judged(verifier, sharding, GATHERED).status is Status.NOT_EXERCISED


def test_a_model_that_goes_is_not_kept(verifier: Verifier) -> None:
    assert judged(verifier, f"{FSDP2}\n{MODEL_GOES}", "").status is Status.NOT_EXERCISED


def test_a_reduction_to_one_rank(verifier: Verifier) -> None:
    reduce = "[dist.reduce(p.grad.to_local(), 0, dist.ReduceOp.SUM) for p in model.parameters()]"
    assert judged(verifier, FSDP2, reduce).figures.startswith("`reduce` combines gradient shards")


def test_replicas_of_a_part_may_be_averaged(verifier: Verifier) -> None:
    group = AVERAGE_LOCALS.format(", group=mesh.get_group('replicate')")
    verdict = judged(verifier, HSDP, group, ranks=4)
    assert verdict.status is Status.CONFIRMED
    assert verdict.figures == "4 parameters sent only to ranks that hold the same shard"


def test_parts_are_not_to_be_averaged_over_all_ranks(verifier: Verifier) -> None:
    verdict = judged(verifier, HSDP, AVERAGE_LOCALS.format(""), ranks=4)
    assert verdict.status is Status.VIOLATED
    assert "ranks 0, 1 hold different shards" in verdict.figures


@pytest.mark.parametrize(
    "sharding, before",
    [
        (FSDP2, "dist.all_reduce(loss.detach())"),
        (FSDP2, "dist.all_reduce(model[0].weight.grad.to_local().clone())"),
        ("fully_shard(model[0])", "[dist.all_reduce(p.grad) for p in model[1].parameters()]"),
    ],
)
def test_what_is_whole_is_nobodys_part(verifier: Verifier, sharding: str, before: str) -> None:
    assert judged(verifier, sharding, before).status is Status.NOT_EXERCISED
