# ruff: noqa: PTH103, PTH113, PTH118, PTH123 - as programs name paths
"""Trains from the checkpoint of a folder, if there is one, and saves after each epoch."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_checkpoint(model, optimizer, scheduler, epoch, losses, folder):
    model_state = get_model_state_dict(model, options=FULL)
    optim_state = get_optimizer_state_dict(model, optimizer, options=FULL)
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "checkpoint.pt")
        checkpoint = {
            "model": model_state,
            "optimizer": optim_state,
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "epoch": epoch,
            "losses": losses,
        }
        torch.save(checkpoint, path)
        print(f"saved {path}")


def load_checkpoint(model, optimizer, scheduler, path):
    if not os.path.isfile(path):
        return 0, []
    checkpoint = torch.load(path, map_location="cpu")
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, checkpoint["model"], options=options)
    set_optimizer_state_dict(model, optimizer, checkpoint["optimizer"], options=options)
    scheduler.load_state_dict(checkpoint["scheduler"])
    torch.set_rng_state(checkpoint["rng"])
    return checkpoint["epoch"] + 1, checkpoint["losses"]


def main(folder, epochs):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    path = os.path.join(folder, "checkpoint.pt")
    start, losses = load_checkpoint(model, optimizer, scheduler, path)
    for epoch in range(start, epochs):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
        save_checkpoint(model, optimizer, scheduler, epoch, losses, folder)
    moments = get_optimizer_state_dict(model, optimizer, options=FULL)
    if dist.get_rank() == 0:
        torch.save(moments, os.path.join(folder, "moments.pt"))
        with open(os.path.join(folder, "losses.json"), "w") as file:
            json.dump(losses, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
