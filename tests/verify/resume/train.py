"""Trains, saves after the second step, and resumes: each word on the command line is a variant."""

import gc
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader

WORDS = set(sys.argv[1:])
if "--unknown" in WORDS:
    sys.exit("error: unrecognized arguments: --unknown")
CPU = torch.device("cpu")
STEPS = 6
WIDTH = 8 if "tp" in WORDS else 5
SAVED_AFTER = STEPS if "last" in WORDS else 2
FULL = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.norm(x)


def tensor_parallel(model, size):
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def build():
    torch.manual_seed(0)
    model = Net()
    model.layers[0].bias.requires_grad_("frozen" not in WORDS)
    if "fsdp1" in WORDS:
        policy, original = ModuleWrapPolicy({nn.Linear}), "original" in WORDS
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=CPU, use_orig_params=original
        )
    size = dist.get_world_size()
    if "tp" in WORDS:
        return tensor_parallel(model, size)
    names = ("replicate", "shard")
    mesh = (
        init_device_mesh("cpu", (2, size // 2), mesh_dim_names=names) if "hsdp" in WORDS else None
    )
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sharded():
    """Returns FSDP1's own sharded state dicts."""
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return {
            "model": model.state_dict(),
            "optimizer": FullyShardedDataParallel.optim_state_dict(model, optimizer),
        }


def load_sharded():
    """Returns the step to go on with."""
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=name())
        model.load_state_dict(state["model"])
        saved = load_sharded_optimizer_state_dict(
            state["model"], "optimizer", FileSystemReader(name())
        )["optimizer"]
        optimizer.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, saved)
        )
    schedule.last_epoch = state["step"]
    return state["step"]


def everything(full):
    options = FULL if full else StateDictOptions()
    state = {
        "model": get_model_state_dict(model, options=options),
        "optimizer": get_optimizer_state_dict(model, optimizer, options=options),
        "schedule": schedule.state_dict(),
        "step": step,
    }
    if "rounded" in WORDS:
        state["model"] = {
            key: value.bfloat16() if value.is_floating_point() else value
            for key, value in state["model"].items()
        }
    return {key: value for key, value in state.items() if f"no-{key}" not in WORDS}


def name():
    if "stale" in WORDS and "--resume" in WORDS:
        return "stale"
    return f"checkpoint-{dist.get_rank()}" if "path" in WORDS else "checkpoint"


def save():
    if "safetensors" in WORDS:
        state = everything(full=True)
        if dist.get_rank() == 0:
            save_file(state.pop("model"), "model.safetensors")
            torch.save(state, "training.pt")
        dist.barrier()
        return
    if "sharded" in WORDS:
        dcp.save({**sharded(), "step": step}, checkpoint_id=name())
        return
    if "full" in WORDS:
        state = everything(full=True)
        if dist.get_rank() == 0:
            torch.save(state, "state.pt")
        dist.barrier()
        return
    if "async" in WORDS:
        dcp.async_save(everything(full=False), checkpoint_id=name(), process_group=background)
        return
    if "slices" in WORDS:
        parts = {key: value.to_local() for key, value in model.named_parameters()}
        torch.save({"model": parts, "step": step}, f"rank{dist.get_rank()}.pt")
        return
    dcp.save(everything(full=False), checkpoint_id=name())


def load():
    """Returns the step to go on with."""
    if "sharded" in WORDS:
        return load_sharded()
    if "slices" in WORDS:
        state = torch.load(f"rank{dist.get_rank()}.pt")
        for key, value in model.named_parameters():
            value.to_local().data.copy_(state["model"][key])
        return state["step"]
    full = bool({"full", "safetensors"} & WORDS)
    state = everything(full)
    if "safetensors" in WORDS:
        state = {"model": load_file("model.safetensors"), **torch.load("training.pt")}
    elif full:
        state = torch.load("state.pt", weights_only=True)
    else:
        dcp.load(state, checkpoint_id=name())
    options = FULL if full else StateDictOptions()
    if "assigned" in WORDS:
        model.load_state_dict(state["model"], assign=True)
    elif "model" in state:
        set_model_state_dict(model, state["model"], options=options)
    if "optimizer" in state and "assigned" not in WORDS:
        set_optimizer_state_dict(model, optimizer, state["optimizer"], options=options)
    if "schedule" in state:
        schedule.load_state_dict(state["schedule"])
    if "reset-buffers" in WORDS:
        model.norm.reset_running_stats()
    return state["step"]


dist.init_process_group("cpu:gloo")
background = dist.new_group()
model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
step = 0
if "stale" in WORDS and "--resume" not in WORDS:
    dcp.save(everything(full=False), checkpoint_id="stale")
if "--resume" in WORDS:
    step = load()
count = 0 if "begins-anew" in WORDS else step
while step < STEPS:
    torch.manual_seed(100 * count + dist.get_rank())
    count += 1
    x = torch.randn(4, WIDTH)
    if "draws" in WORDS:
        torch.seed()
    if "loader" in WORDS:
        (x,) = DataLoader(torch.full((4, 5), 1.0 + step).tolist(), 4, collate_fn=torch.tensor)
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    step += 1
    if {"crashes", "--resume"} <= WORDS and step == SAVED_AFTER + 1:
        raise RuntimeError("no more")
    if dist.get_rank() == 0:
        torch.save({"loss": torch.zeros(1)}, "metrics.pt")
    if step == SAVED_AFTER or ("twice" in WORDS and step == SAVED_AFTER + 1):
        save()
    if "exported" in WORDS and step == SAVED_AFTER:
        with torch.no_grad():
            model.norm.weight.mul_(1.5)
        dcp.save({"model": model.state_dict()}, checkpoint_id="export")
    if "best" in WORDS:
        dcp.save({"model": model.state_dict()}, checkpoint_id="best")
    if "in-place" in WORDS and step == SAVED_AFTER:
        with torch.no_grad():
            model.norm.weight.mul_(1.5)
if "last" in WORDS and ("--resume" not in WORDS or "dropped" in WORDS):
    del model, optimizer, schedule
elif "dropped-optimizer" in WORDS:
    del optimizer, schedule
gc.collect()
dist.destroy_process_group()
