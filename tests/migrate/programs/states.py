"""Trains, saves, and resumes from the files of a folder, with every kind of state dict of FSDP1."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as programs name it
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

SAVE_POLICY = FullStateDictConfig(rank0_only=True)


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    policy = ModuleWrapPolicy({nn.Linear})
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, seed):
    torch.manual_seed(seed + dist.get_rank())
    for _ in range(2):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def save(model, optimizer, path):
    optim_policy = FullOptimStateDictConfig(rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, SAVE_POLICY, optim_policy):
        # the whole model, on rank 0
        state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": state, "optim": optim_state}, path)


def save_shards(model, optimizer, path):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
        state["optim"] = FSDP.optim_state_dict(model, optimizer)
        dcp.save_state_dict(state, dcp.FileSystemWriter(path))


def load(model, optimizer, path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    state = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optim"])
    optimizer.load_state_dict(state)


def load_shards(model, optimizer, path):
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    state = {"model": model.state_dict()}
    dcp.load_state_dict(state, dcp.FileSystemReader(path))
    model.load_state_dict(state["model"])
    optim_state = load_sharded_optimizer_state_dict(
        state["model"], "optim", dcp.FileSystemReader(path)
    )
    flattened = FSDP.optim_state_dict_to_load(model, optimizer, optim_state["optim"])
    optimizer.load_state_dict(flattened)


def load_legacy(model, optimizer, path):
    checkpoint = torch.load(path) if dist.get_rank() == 0 else {"optim": None}
    full = checkpoint["optim"]
    sharded = FSDP.scatter_full_optim_state_dict(full, model)
    optimizer.load_state_dict(sharded)
    return FSDP.full_optim_state_dict(model, optimizer)


def summoned(model):
    norms = {}
    with FSDP.summon_full_params(model, writeback=False):
        copies = [p.detach().clone() for p in model.module.parameters()]
        for name, p in model.named_parameters():
            norms[name] = p.norm()
        return copies, norms, model.state_dict(), model[0].weight.sum()


def main(source, target):
    dist.init_process_group("gloo")
    model, optimizer = build(0)
    train(model, optimizer, 1)
    save(model, optimizer, f"{target}/full.pt")
    save_shards(model, optimizer, f"{target}/shards")
    model, optimizer = build(5)
    load(model, optimizer, f"{source}/full.pt")
    train(model, optimizer, 7)
    save(model, optimizer, f"{target}/resumed.pt")
    model, optimizer = build(6)
    load_shards(model, optimizer, f"{source}/shards")
    train(model, optimizer, 7)
    save(model, optimizer, f"{target}/resumed_from_shards.pt")
    model, optimizer = build(5)
    state = load_legacy(model, optimizer, f"{source}/full.pt")
    torch.save(state, f"{target}/legacy{dist.get_rank()}.pt")
    train(model, optimizer, 7)
    torch.save(model.state_dict(), f"{target}/plain{dist.get_rank()}.pt")
    torch.save(summoned(model), f"{target}/summoned{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
