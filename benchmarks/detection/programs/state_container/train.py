"""All that training changes lives in one state object, handed from function to function."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Sublayer(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a = nn.Linear(n, n)
        self.b = nn.Linear(n, n)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(nn.functional.silu(self.a(x)))


class Network(nn.Module):
    def __init__(self, n: int, depth: int) -> None:
        super().__init__()
        self.sublayers = nn.ModuleList([Sublayer(n) for _ in range(depth)])
        self.final = nn.Linear(n, 1)

    def forward(self, x: Tensor) -> Tensor:
        for sublayer in self.sublayers:
            x = sublayer(x)
        return self.final(x)


@dataclass
class TrainState:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    step: int = 0
    history: list[float] = field(default_factory=list)


def shard(model: nn.Module) -> nn.Module:
    for name, module in model.named_modules():
        if name.startswith("sublayers.") and name.count(".") == 1:
            fully_shard(module)
    return fully_shard(model)


def create_state(config: dict, device: torch.device) -> TrainState:
    torch.manual_seed(config["seed"])
    model = Network(config["n"], config["depth"]).to(device)
    model = shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=config["steps"])
    return TrainState(model, optimizer, scheduler)


def data(config: dict, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    torch.manual_seed(config["seed"] + 1 + dist.get_rank())
    while True:
        x = torch.randn(4, config["n"], device=device)
        yield x, x.norm(dim=-1, keepdim=True)


def update(state: TrainState, batches: Iterator[tuple[Tensor, Tensor]], accumulate: int) -> None:
    for i in range(accumulate):
        x, y = next(batches)
        state.model.set_requires_gradient_sync(i == accumulate - 1)
        loss = nn.functional.smooth_l1_loss(state.model(x), y)
        loss.div(accumulate).backward()
    nn.utils.clip_grad_value_(state.model.parameters(), 10.0)
    state.optimizer.step()
    state.scheduler.step()
    state.optimizer.zero_grad()
    state.step += 1
    state.history.append(loss.item())


def validate(state: TrainState, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        x, y = next(batches)
        return nn.functional.smooth_l1_loss(state.model(x), y).item()


def write(state: TrainState, folder: Path) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    payload = {
        "model": get_model_state_dict(state.model, options=options),
        "optimizer": get_optimizer_state_dict(state.model, state.optimizer, options=options),
        "scheduler": state.scheduler.state_dict(),
        "step": state.step,
    }
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(payload, folder / "state.pt")
        (folder / "history.json").write_text(json.dumps(state.history))


def main() -> None:
    config = {"n": 8, "depth": 3, "lr": 1e-2, "steps": 4, "seed": 5, "accumulate": 2}
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    state = create_state(config, device)
    batches = data(config, device)
    while state.step < config["steps"]:
        update(state, batches, config["accumulate"])
        if dist.get_rank() == 0:
            print(state.step, state.history[-1])
    write(state, Path("state"))
    score = validate(state, batches)
    if dist.get_rank() == 0:
        print(f"validation {score:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
