# ruff: noqa: PTH103, PTH110, PTH118, PTH123, PTH208 - as programs name paths
"""Gathers states by helpers or by hand, and saves them in a folder with the time as its name."""

import json
import os
import sys
import time

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
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Checkpoints:
    def __init__(self, folder, by_helpers):
        self.folder, self.by_helpers = folder, by_helpers
        self.last = max(os.listdir(folder)) if os.path.exists(folder) else None

    def model_state(self, model):
        if self.by_helpers:
            return get_model_state_dict(model, options=FULL)
        return {name: each.full_tensor().cpu() for name, each in model.state_dict().items()}

    def optimizer_state(self, model, optimizer):
        if self.by_helpers:
            return get_optimizer_state_dict(model=model, optimizers=optimizer, options=FULL)
        sharded = optimizer.state_dict()
        states = {}
        for number, state in sharded["state"].items():
            states[number] = {}
            for name, each in state.items():
                full = each.full_tensor() if isinstance(each, DTensor) else each
                states[number][name] = full.cpu()
        return {"state": states, "param_groups": sharded["param_groups"]}

    def save(self, model, optimizer):
        model_state = self.model_state(model)
        optimizer_state = self.optimizer_state(model, optimizer)
        if dist.get_rank() == 0:
            now = time.time_ns()
            folder = f"{self.folder}/{now}"
            os.makedirs(folder, exist_ok=True)
            torch.save(model_state, f"{folder}/model.pt")
            torch.save(optimizer_state, f"{folder}/optimizer.pt")
        dist.barrier()

    def load_model(self, model):
        path = f"{self.folder}/{self.last}/model.pt"
        state = torch.load(path, map_location="cpu")
        if self.by_helpers:
            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            set_model_state_dict(model, state, options=options)
            return
        sharded = model.state_dict()
        new = {
            name: distribute_tensor(each, sharded[name].device_mesh, sharded[name].placements)
            for name, each in state.items()
        }
        model.load_state_dict(new, assign=True)

    def load_optimizer(self, model, optimizer):
        path = f"{self.folder}/{self.last}/optimizer.pt"
        state = torch.load(path, map_location="cpu")
        if self.by_helpers:
            set_optimizer_state_dict(
                model, optimizer, state, options=StateDictOptions(full_state_dict=True)
            )
        else:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for number, values in state["state"].items():
                for name, each in values.items():
                    if each.dim() > 0:
                        mesh = parameters[number].device_mesh
                        placements = parameters[number].placements
                        values[name] = distribute_tensor(each, mesh, placements)
            optimizer.load_state_dict(state)


def main(folder, epochs, by_helpers):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    checkpoints = Checkpoints(f"{folder}/checkpoints", by_helpers)
    if checkpoints.last is not None:
        checkpoints.load_model(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    if checkpoints.last is not None:
        checkpoints.load_optimizer(model, optimizer)
        with open(f"{folder}/losses.json") as file:
            losses = json.load(file)
    for epoch in range(len(losses), epochs):
        torch.manual_seed(epoch)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    checkpoints.save(model, optimizer)
    moments = get_optimizer_state_dict(model, optimizer, options=FULL)
    if dist.get_rank() == 0:
        torch.save(moments, os.path.join(folder, "moments.pt"))
        with open(os.path.join(folder, "losses.json"), "w") as file:
            json.dump(losses, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "helpers")
