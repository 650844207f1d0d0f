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
        "1 unit, 1 parameter; each rank keeps 50.0 % of 20 elements",
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
        "one backward a step",
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
    assert figures.startswith("2 ignored parameters that an optimizer holds (`0.bias`, `0.weight`)")


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
