"""Small programs in the shapes of public ones that a verdict was wrong about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.verdict import Status, Verification

HEAD = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
"""


def run(verifier: Verifier, folder: Path, body: str) -> Verification:
    (folder / "train.py").write_text(HEAD + body)
    result = verifier(folder / "train.py", steps=None)
    assert result.failure == ""
    return result


def said(result: Verification, clause: str) -> tuple[Status, str]:
    (found,) = (verdict for verdict in result.verdicts if verdict.clause == clause)
    return found.status, found.figures


TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 4, device=device)).sum().backward()
    optimizer.step()
"""


def test_a_device_that_is_named_everywhere_need_not_be_set(
    verifier: Verifier, tmp_path: Path
) -> None:
    body = f"model = FSDP(nn.Linear(4, 4).to(device), device_id=device)\n{TRAIN}"
    assert said(run(verifier, tmp_path, body), "device-per-rank") == (
        Status.CONFIRMED,
        "nccl, 2 ranks on cuda:0, cuda:1",
    )


def test_a_small_parameter_that_one_rank_holds_whole_is_a_part(
    verifier: Verifier, tmp_path: Path
) -> None:
    body = f"""
torch.cuda.set_device(rank)
model = FSDP(nn.Sequential(nn.Linear(4, 4)), device_id=rank, use_orig_params=True)
{TRAIN}
with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
    torch.save(model.state_dict(), f"part{{rank}}.pt")
"""
    status, figures = said(run(verifier, tmp_path, body), "saves")
    assert status is not Status.VIOLATED, figures


def test_hybrid_sharding_divides_over_the_devices_of_a_node(
    verifier: Verifier, tmp_path: Path
) -> None:
    body = f"""
torch.cuda.set_device(rank)
model = FSDP(
    nn.Sequential(nn.Linear(4, 4)),
    device_id=rank,
    sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    auto_wrap_policy=ModuleWrapPolicy({{nn.Linear}}),
)
{TRAIN}
"""
    assert said(run(verifier, tmp_path, body), "units") == (
        Status.CONFIRMED,
        "1 unit, 1 parameter; each rank holds 50.0% of 20 elements",
    )


def test_a_step_that_a_scaler_skips_accumulates_nothing(verifier: Verifier, tmp_path: Path) -> None:
    body = """
torch.cuda.set_device(rank)
model = FSDP(nn.Linear(4, 4), device_id=rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = ShardedGradScaler(init_scale=2.0**127)
for _ in range(10):
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(4, 4, device=device)).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    assert said(run(verifier, tmp_path, body), "accumulation") == (
        Status.NOT_EXERCISED,
        "one backward pass per step",
    )


def test_ignored_parameters_that_begin_apart_are_not_called_covered(
    verifier: Verifier, tmp_path: Path
) -> None:
    body = f"""
torch.cuda.set_device(rank)
torch.manual_seed(rank)
inner = nn.Linear(4, 4)
model = FSDP(nn.Sequential(inner, nn.Linear(4, 4)), device_id=rank, ignored_modules=[inner])
{TRAIN}
"""
    status, figures = said(run(verifier, tmp_path, body), "coverage")
    assert status is Status.NOT_EXERCISED
    assert figures.startswith("2 ignored parameters in an optimizer (`0.bias`, `0.weight`)")


TIED = """
torch.cuda.set_device(rank)
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x.abs().long().clamp(max=7)))

{wrapped}
"""


@pytest.mark.parametrize(
    ("wrapped", "told"),
    [
        (
            "policy = ModuleWrapPolicy({nn.Embedding})\n"
            "model = FSDP(Tied().cuda(), device_id=rank, auto_wrap_policy=policy)",
            (
                Status.VIOLATED,
                "`embed.weight` and `head.weight` are no longer tied at step 1: they train apart",
            ),
        ),
        (
            "model = FSDP(Tied().cuda(), device_id=rank)",
            (Status.CONFIRMED, "`embed.weight` = `head.weight`"),
        ),
        (
            "model = FSDP(Tied().cuda(), device_id=rank, use_orig_params=True)",
            (Status.CONFIRMED, "`embed.weight` = `head.weight`"),
        ),
    ],
)
def test_ties_of_what_fsdp1_flattens(
    verifier: Verifier, tmp_path: Path, wrapped: str, told: tuple[Status, str]
) -> None:
    body = TIED.replace("{wrapped}", wrapped) + TRAIN
    assert said(run(verifier, tmp_path, body), "ties") == told


def test_coverage_is_not_known_before_a_step(verifier: Verifier, tmp_path: Path) -> None:
    body = """
torch.cuda.set_device(rank)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
fully_shard(model[0])
raise ValueError
"""
    (tmp_path / "train.py").write_text(HEAD + body)
    found = verifier(tmp_path / "train.py", steps=None)
    assert said(found, "coverage") == (
        Status.NOT_EXERCISED,
        "the script failed before its first optimizer step",
    )


def test_a_backward_outside_of_fsdp1s_no_sync(verifier: Verifier, tmp_path: Path) -> None:
    body = """
torch.cuda.set_device(rank)
model = FSDP(nn.Linear(4, 4), device_id=rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    with model.no_sync():
        loss = model(torch.randn(4, 4, device=device)).sum()
    loss.backward()
    model(torch.randn(4, 4, device=device)).sum().backward()
    optimizer.step()
"""
    (verdict,) = run(verifier, tmp_path, body).violated
    assert verdict.clause == "accumulation"
    assert verdict.fix.startswith("run the backward pass inside `no_sync`, too")


def test_an_error_that_a_rank_swallows_is_told(verifier: Verifier, tmp_path: Path) -> None:
    body = f"""
torch.cuda.set_device(rank)
model = fully_shard(nn.Linear(4, 4).cuda())
try:
    if rank == 0:
        raise ValueError("unknown device")
    {TRAIN.strip().replace(chr(10), chr(10) + "    ")}
except ValueError:
    dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(HEAD + body)
    found = verifier(tmp_path / "train.py", steps=None)
    (verdict,) = found.violated
    assert verdict.clause == "collectives"
    assert verdict.details[0] == (
        "rank 0: finished the script without this collective, after ValueError at train.py:24: "
        "unknown device"
    )


def test_parameters_with_zero_gradients_are_counted(verifier: Verifier, tmp_path: Path) -> None:
    body = f"""
torch.cuda.set_device(rank)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
nn.init.zeros_(model[1].weight)
model[1].weight.requires_grad_(False)
fully_shard(model)
{TRAIN}
"""
    assert said(run(verifier, tmp_path, body), "parameters-change") == (
        Status.CONFIRMED,
        "1 of 1 parameter changed in 3 steps; the gradients of 2 more are zero",
    )


def test_tensor_parallelism_under_fsdp1_is_no_copy(verifier: Verifier, tmp_path: Path) -> None:
    body = f"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))
model = nn.Sequential(nn.Linear(4, 8, bias=False).cuda())
parallelize_module(model, mesh["tensor"], {{"0": ColwiseParallel()}})
model = FSDP(model, device_mesh=mesh["data"], use_orig_params=True)
{TRAIN}
"""
    (tmp_path / "train.py").write_text(HEAD + body)
    found = verifier(tmp_path / "train.py", steps=None, ranks=4)
    assert said(found, "units") == (
        Status.CONFIRMED,
        "1 unit, 1 parameter; each rank holds 25.0% of 32 elements",
    )


def test_devices_draw_numbers_of_their_own_where_nothing_seeds_them(
    verifier: Verifier, tmp_path: Path
) -> None:
    body = f"""
torch.cuda.set_device(rank)
model = FSDP(nn.Linear(4, 4), device_id=rank)
drawn = [torch.empty(1) for _ in range(2)]
dist.all_gather(drawn, torch.randn(1, device=device))
assert drawn[0] != drawn[1]
{TRAIN}
"""
    run(verifier, tmp_path, body)


@pytest.mark.parametrize("variable", [True, False])
def test_packages_are_those_of_the_copy(tmp_path: Path, variable: bool) -> None:
    """The original says more than the copy, whose package the run's overlay has replaced."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "helper.py").write_text("WHERE = __file__\n")
    script = "import helper, os\nassert os.getcwd() in helper.WHERE, helper.WHERE\n"
    (tmp_path / "train.py").write_text(
        script if variable else f"import sys\nsys.path.insert(0, 'src')\n{script}"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "fsdplint", "verify", "train.py"],
        cwd=tmp_path,
        env={**_environment(), "PYTHONPATH": str(tmp_path / "src") if variable else ""},
        capture_output=True,
        text=True,
    )
    assert "nothing to verify: no module became an FSDP unit" in ran.stdout, ran.stdout + ran.stderr


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
