"""What frameworks do that plain scripts do not, in small: Lightning, accelerate, transformers, TRL,
and launchers of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.remedies import with_remedies
from fsdplint.verify.report import render
from fsdplint.verify.verdict import Status, Verification

HEAD = """
import signal
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, fully_shard,
)
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
data = torch.Generator().manual_seed(rank)

def batch():
    return torch.randn(4, 8, generator=data).cuda()
"""


def run(verifier: Verifier, body: str, ranks: int = 2) -> Verification:
    return verifier(HEAD + body, steps=None, ranks=ranks)


def said(found: Verification, clause: str) -> tuple[Status, str]:
    (verdict,) = (verdict for verdict in found.verdicts if verdict.clause == clause)
    return verdict.status, verdict.figures


def text(found: Verification) -> str:
    return render(found, "text", Path(), color=False, width=300)


CLOSURE = """
model = {model}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

def closure():
    loss = model(batch()).square().mean()
    loss.backward()
    return loss

for _ in range(3):
    {before}
    optimizer.step({closure})
    optimizer.zero_grad()
"""
FSDP1 = "FSDP(nn.Linear(8, 8), device_id=rank, use_orig_params=True)"


@pytest.mark.parametrize("closure", ["closure", "closure=closure"])
def test_a_backward_in_the_steps_closure(verifier: Verifier, closure: str) -> None:
    accumulate = "with model.no_sync():\n        closure()"
    body = CLOSURE.format(model=FSDP1, before=accumulate, closure=closure)
    found = run(verifier, body)
    assert (found.failure, found.violated) == ("", ())
    assert said(found, "gradients") == (
        Status.CONFIRMED,
        "gradients reduced before each of 3 steps",
    )
    assert said(found, "parameters-change")[1] == "2 of 2 parameters changed in 3 steps"


@pytest.mark.parametrize("order", ["closure first", "update first", "never"])
def test_an_optimizer_of_ones_own_with_a_closure(verifier: Verifier, order: str) -> None:
    body = f"""
class Mine(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.1))

    @torch.no_grad()
    def step(self, closure=None):
        if "{order}" == "closure first":
            with torch.enable_grad():
                closure()
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p -= 0.1 * p.grad
        if "{order}" == "update first":
            with torch.enable_grad():
                closure()

model = fully_shard(nn.Linear(8, 8).cuda())
optimizer = Mine(model.parameters())

def closure():
    model(batch()).square().mean().backward()

closure()
for _ in range(3):
    optimizer.step(closure)
"""
    found = run(verifier, body)
    assert (found.failure, found.violated) == ("", ())
    assert said(found, "parameters-change") == (
        Status.CONFIRMED,
        "2 of 2 parameters changed in 3 steps",
    )


def test_a_fault_in_the_steps_closure_shows_at_its_step(verifier: Verifier) -> None:
    body = CLOSURE.format(
        model="fully_shard(nn.Linear(8, 8).cuda())",
        before="model.set_requires_gradient_sync(False)",
        closure="closure",
    )
    found = run(verifier, body)
    assert said(found, "gradients") == (
        Status.VIOLATED,
        "the gradients of 2 parameters are not reduced at step 1",
    )


TRAIN = """
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(3):
    output = model(batch())
    output.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "collective",
    [
        "dist.all_gather_into_tensor(torch.empty(size * 32).cuda(), output)",
        "dist.all_gather_into_tensor(torch.empty(size * 4, 8).cuda(), output)",
        "dist.all_gather_into_tensor(torch.empty(size).cuda(), output.sum())",
        "dist.reduce_scatter_tensor(torch.empty(16).cuda(), output)",
    ],
)
def test_nccl_takes_any_shape_and_what_requires_gradients(
    verifier: Verifier, collective: str
) -> None:
    found = run(verifier, f"model = fully_shard(nn.Linear(8, 8).cuda()){TRAIN}{collective}\n")
    assert (found.failure, found.violated) == ("", ())


def test_what_is_gathered_in_another_shape_is_all_there(verifier: Verifier) -> None:
    body = f"""
model = fully_shard(nn.Linear(8, 8).cuda()){TRAIN}
flat = torch.empty(size * 6).cuda()
dist.all_gather_into_tensor(flat, torch.arange(6.0).view(2, 3).cuda() + 10 * rank)
assert flat.tolist() == [*range(6), *range(10, 16)]
mine = torch.empty(3).cuda()
dist.reduce_scatter_tensor(mine, torch.arange(6.0).view(2, 3).cuda())
assert mine.tolist() == [2.0 * (3 * rank + at) for at in range(3)]
"""
    assert run(verifier, body).failure == ""


def test_autocast_runs_norms_in_float32_as_on_cuda(verifier: Verifier) -> None:
    body = """
policy = MixedPrecision(param_dtype=torch.bfloat16, cast_root_forward_inputs=False)
model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GroupNorm(2, 8)).cuda()
model = FSDP(model, device_id=rank, mixed_precision=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(batch())
    assert output.dtype == torch.float32
    output.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    found = run(verifier, body)
    assert (found.failure, found.violated) == ("", ())


def test_a_library_that_restores_signals_leaves_a_hang_a_hang(verifier: Verifier) -> None:
    body = f"""
known = signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP}}
before = {{number: signal.getsignal(number) for number in known}}
model = fully_shard(nn.Linear(8, 8).cuda()){TRAIN}
for number, handler in before.items():
    if handler is not None:
        signal.signal(number, handler)
if rank == 0:
    dist.barrier()
"""
    found = run(verifier, body)
    assert [rank.ended for rank in found.ranks] == ["stuck", "script"]
    (verdict,) = found.violated
    assert verdict.clause == "collectives"
    assert "rank 0: barrier at train.py" in verdict.details[0]


def test_a_handler_of_the_scripts_own_runs_too(verifier: Verifier) -> None:
    body = f"""
import os
caught = []
signal.signal(signalnum=signal.SIGUSR1, handler=lambda *_: caught.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
assert caught == [1]
model = fully_shard(nn.Linear(8, 8).cuda()){TRAIN}
if rank == 0:
    dist.barrier()
"""
    found = run(verifier, body)
    (verdict,) = found.violated
    assert "stack of rank 0: train.py" in verdict.details[-1]


def test_a_nan_that_comes_after_the_loss_is_not_its_cause(verifier: Verifier) -> None:
    body = """
model = fully_shard(nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    p = model(batch()).softmax(-1) * 0
    (p.log() * p).sum().backward()
    optimizer.step()
"""
    found = run(verifier, body)
    (verdict,) = found.violated
    assert (verdict.clause, verdict.figures) == ("loss", "loss is nan on rank 0 at step 1")
    assert "no module returned a NaN before that" in verdict.details
    assert verdict.fix == "check how the loss is computed"


def test_a_crash_that_no_clause_is_about_is_told_whole(verifier: Verifier) -> None:
    blocks = "*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4))"
    found = run(
        verifier, f"model = fully_shard(nn.Sequential({blocks}).cuda()){TRAIN}{{}}['rate']\n"
    )
    assert [verdict.clause for verdict in found.violated] == ["blocks"]
    assert found.exit_code == 1
    shown = text(found)
    assert "  KeyError: 'rate'\n" in shown
    assert "Traceback (most recent call last):" in shown
    assert "Violated: blocks (train.py:16); and ranks 0, 1: KeyError: 'rate'; " in shown


def test_modules_that_are_sharded_together_are_one_unit(verifier: Verifier) -> None:
    body = f"""
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)).cuda()
fully_shard(model[0])
fully_shard([model[1], model[2]])
fully_shard(model){TRAIN}
"""
    shown = text(run(verifier, body))
    assert "sharding of Sequential: 3 FSDP2 units, 6 parameters, 160 elements\n" in shown
    assert "    1, 2           LayerNorm, Linear        44     88  50.0%\n" in shown


def test_no_table_is_drawn_of_what_a_crash_left_gathered(verifier: Verifier) -> None:
    body = """
class Bad(nn.Linear):
    def forward(self, x):
        raise ValueError("wrong input")

FSDP(Bad(8, 8), device_id=rank)(batch())
"""
    shown = text(run(verifier, body))
    assert "ValueError: wrong input" in shown
    assert "sharding of" not in shown


@pytest.mark.parametrize(
    ("sync", "average", "status"),
    [(False, False, "violated"), (True, False, "confirmed"), (False, True, "confirmed")],
)
def test_whole_copies_of_fsdp1_have_to_stay_equal(
    verifier: Verifier, sync: bool, average: bool, status: str
) -> None:
    strategy = "sharding_strategy=ShardingStrategy.NO_SHARD"
    context = "nullcontext" if sync else "model.no_sync"
    body = f"""
from contextlib import nullcontext
model = FSDP(nn.Linear(8, 8), device_id=rank, {strategy})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    with {context}():
        model(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if {average}:  # before the next step, as in local SGD
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= size
if {average}:
    model(batch()).square().mean().backward()
    optimizer.step()
"""
    assert said(run(verifier, body), "replicas")[0].value == status


def test_functions_in_processes_of_the_scripts_own_are_named(verifier: Verifier) -> None:
    script = """
import multiprocessing

def worker(rank):
    print("worked", rank)

processes = [multiprocessing.Process(target=worker, args=(rank,)) for rank in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""
    assert verifier(script).failure == (
        "nothing to verify: no module became an FSDP unit on any rank; verify cannot observe the "
        "processes that the script starts at train.py:9 for `worker`; run it on a script that "
        "calls `worker` on each rank"
    )


def test_what_forked_processes_do_is_none_of_the_ranks(verifier: Verifier) -> None:
    body = f"""
model = fully_shard(nn.Linear(8, 8).cuda()){TRAIN}
def train():
    for _ in range(5):
        loss = nn.Linear(2, 2)(torch.ones(1, 2)).sum()
        loss.backward()
process = mp.get_context("fork").Process(target=train)
process.start()
process.join()
"""
    found = run(verifier, body)
    assert said(found, "loss")[1].startswith("6 losses between ")


def test_a_world_of_one_that_is_written_down_is_no_matter_of_devices(
    verifier: Verifier, tmp_path: Path
) -> None:
    script = """
import torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, init_method="tcp://127.0.0.1:29501")
"""
    (tmp_path / "train.py").write_text(script)
    found = with_remedies(verifier(tmp_path / "train.py"), tmp_path)
    remedy = found.remedies["device-per-rank"]
    assert (remedy.rule, remedy.command) == ("", "")
    assert remedy.fix.startswith("read the rank and the world size from the environment")
