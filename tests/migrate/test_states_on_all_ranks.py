"""States that only some ranks take or load, where FSDP1 hangs, are taken by all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.step import Change

planned = partial(plan_of, FSDP2)
_HEAD = """\
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
"""
# A checkpoint that all ranks save and only rank 0 loads.
_RESUMED = f"""{_HEAD}

def step(model, optimizer):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
resume = os.environ.get("RESUME", "checkpoint")
model = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
step(model, optimizer)
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = {{"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}}
    dcp.save(state, checkpoint_id=resume)
saved = [parameter.detach().clone() for parameter in model.parameters()]
moments = [optimizer.state[parameter]["exp_avg"].clone() for parameter in model.parameters()]
torch.save(scheduler.state_dict(), f"scheduler{{dist.get_rank()}}.pt")
step(model, optimizer)
if resume and dist.get_rank() == 0:
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {{"model": model.state_dict()}}
        dcp.load_state_dict(state, storage_reader=dcp.FileSystemReader(resume))
        model.load_state_dict(state["model"])
        reader = dcp.FileSystemReader(resume)
        loaded = load_sharded_optimizer_state_dict(state["model"], "optim", reader)
        flat = FSDP.optim_state_dict_to_load(model, optimizer, loaded["optim"])
        optimizer.load_state_dict(flat)
        scheduler.load_state_dict(torch.load("scheduler0.pt"))
"""
_RESTORED = """
for parameter, weight, moment in zip(model.parameters(), saved, moments, strict=True):
    assert torch.equal(parameter.to_local(), weight.to_local())
    assert torch.equal(optimizer.state[parameter]["exp_avg"].to_local(), moment.to_local())
dist.barrier()
dist.destroy_process_group()
"""


def test_all_ranks_load_what_rank_0_loaded_alone(tmp_path: Path, ranks: Ranks) -> None:
    plan = planned(tmp_path, _RESUMED)
    after = only_change(plan)
    assert "\nif resume:\n    state = {" in after
    ((_, corrected),) = plan.corrected
    assert corrected.text == _RESUMED.replace(" and dist.get_rank() == 0:", ":")
    assert not report(ranks.run(after + _RESTORED, process_group=False))


_TRAINER = """

class Trainer:
    def __init__(self, model, kind="ddp"):
        self.kind = kind
        self.model = FSDP(model) if self.kind == "fsdp" else model

    def save(self, path):
        if dist.get_rank() != 0:
            return
        checkpoint = {"model": self.model.state_dict()}
        torch.save(checkpoint, path)
"""


def test_all_ranks_take_a_state_in_a_method_that_nothing_calls(tmp_path: Path) -> None:
    plan = planned(tmp_path, _HEAD + _TRAINER)
    assert only_change(plan).endswith("""\
    def save(self, path):
        checkpoint = {"model": get_model_state_dict(self.model, options=\
StateDictOptions(full_state_dict=True))}
        if dist.get_rank() != 0:
            return
        torch.save(checkpoint, path)
""")
    what = [entry.found.what for entry in plan.of(Change) if isinstance(entry.found, Change)]
    assert "let every rank call `self.model.state_dict`" in what


def test_what_writes_a_file_beside_the_state_stays_on_rank_0(tmp_path: Path) -> None:
    text = f"""{_HEAD}
model = FSDP(nn.Linear(8, 8))
scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.AdamW(model.parameters()), 1)
if dist.get_rank() == 0:
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        dcp.save({{"model": model.state_dict()}}, checkpoint_id="checkpoint")
        torch.save(scheduler.state_dict(), "scheduler.pt")
"""
    after = only_change(planned(tmp_path, text))
    assert after.endswith("""
state_dict = get_model_state_dict(model)
dcp.save({"model": state_dict}, checkpoint_id="checkpoint")
if dist.get_rank() == 0:
    torch.save(scheduler.state_dict(), "scheduler.pt")
""")


def test_the_state_is_that_of_the_wrapper(tmp_path: Path) -> None:
    text = f"""{_HEAD}
model = FSDP(nn.Linear(8, 8))
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
"""
    plan = planned(tmp_path, text)
    assert only_change(plan).endswith("""
state_dict = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if dist.get_rank() == 0:
    torch.save(state_dict, "model.pt")
""")
    ((_, corrected),) = plan.corrected
    assert corrected.text.endswith("""
state_dict = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state_dict, "model.pt")
""")
    (said,) = [each.found for each in plan.of(Change) if each.found.what.startswith("take the")]
    assert said.differs == "the module inside FSDP1's wrapper may give one rank's shards"
