"""Functions that make functions: the step closes over what it needs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from safe_writer import atomic_save
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

OPTIMIZERS = {
    "adamw": functools.partial(torch.optim.AdamW, betas=(0.9, 0.95)),
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),
}

full_precision = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
shard = functools.partial(fully_shard, mp_policy=full_precision)


class PreNorm(nn.Module):
    def __init__(self, width: int, inner: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Tower(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(5, width)
        self.floors = nn.ModuleList(
            PreNorm(width, nn.Sequential(nn.Linear(width, width), nn.ReLU())) for _ in range(depth)
        )
        self.outputs = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x)
        for floor in self.floors:
            x = floor(x)
        return self.outputs(x)


def sharded(tower: Tower) -> Tower:
    for floor in tower.floors:
        shard(floor)
    shard(tower)
    return tower


def make_step(
    tower: nn.Module, optimizer: torch.optim.Optimizer, accumulate: int
) -> Callable[[list[Tensor]], float]:
    """A function that takes one optimizer step on the micro-batches it is given."""

    def reconstruction(x: Tensor) -> Tensor:
        return nn.functional.mse_loss(tower(x), x) / accumulate

    def step(micro_batches: list[Tensor]) -> float:
        total = 0.0
        for i, x in enumerate(micro_batches):
            tower.set_requires_gradient_sync(i == accumulate - 1)
            loss = reconstruction(x)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def main(optimizer_name: str = "adamw", steps: int = 3, accumulate: int = 2) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    tower = Tower(width=16, depth=3).to(device)
    tower = sharded(tower)
    optimizer = OPTIMIZERS[optimizer_name](tower.parameters(), lr=1e-2)

    step = make_step(tower, optimizer, accumulate)
    torch.manual_seed(1 + dist.get_rank())
    for number in range(steps):
        loss = step([torch.randn(4, 5, device=device) for _ in range(accumulate)])
        if dist.get_rank() == 0:
            print(number, f"{loss:.4f}")

    collect = functools.partial(
        get_model_state_dict, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    atomic_save(collect(tower), "tower.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
