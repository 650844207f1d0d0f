"""A Trainer that owns the model, the optimizer and the loop."""

import os
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)


@dataclass
class Args:
    width: int = 24
    depth: int = 3
    steps: int = 4
    grad_accum: int = 2
    lr: float = 1e-3
    save_every: int = 2
    run_dir: str = "runs"


class MLP(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc1 = nn.Linear(width, width * 2)
        self.fc2 = nn.Linear(width * 2, width)

    def forward(self, x):
        return x + self.fc2(torch.tanh(self.fc1(x)))


class Regressor(nn.Module):
    def __init__(self, args: Args):
        super().__init__()
        self.inp = nn.Linear(8, args.width)
        self.trunk = nn.ModuleList()
        for _ in range(args.depth):
            self.trunk.append(MLP(args.width))
        self.out = nn.Linear(args.width, 1)

    def forward(self, x):
        h = self.inp(x)
        for mlp in self.trunk:
            h = mlp(h)
        return self.out(h).squeeze(-1)


@contextmanager
def process_group():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


class Trainer:
    def __init__(self, args: Args):
        self.args = args
        self.rank = dist.get_rank()
        self.device = self._pick_device()
        torch.manual_seed(7)
        self.model = Regressor(args).to(self.device)
        self._shard()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2)
        self.global_step = 0

    def _pick_device(self):
        if not torch.cuda.is_available():
            return torch.device("cpu")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        return device

    def _shard(self):
        for mlp in self.model.trunk:
            fully_shard(mlp, reshard_after_forward=True)
        fully_shard(self.model, reshard_after_forward=False)

    def _batches(self):
        generator = torch.Generator().manual_seed(100 + self.rank)
        while True:
            x = torch.randn(4, 8, generator=generator).to(self.device)
            yield x, x.sum(dim=-1)

    def train_step(self, batches):
        self.optimizer.zero_grad()
        losses = []
        for i in range(self.args.grad_accum):
            x, y = next(batches)
            last = i + 1 == self.args.grad_accum
            self.model.set_requires_gradient_sync(last)
            pred = self.model(x)
            loss = nn.functional.mse_loss(pred, y) / self.args.grad_accum
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.optimizer.step()
        self.scheduler.step()
        return torch.stack(losses).sum().item()

    def save_checkpoint(self):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        checkpoint = {
            "model": get_model_state_dict(self.model, options=options),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer, options=options),
            "step": self.global_step,
        }
        if self.rank == 0:
            os.makedirs(self.args.run_dir, exist_ok=True)  # noqa: PTH103
            torch.save(checkpoint, f"{self.args.run_dir}/step_{self.global_step}.pt")

    def fit(self):
        batches = self._batches()
        self.model.train()
        while self.global_step < self.args.steps:
            loss = self.train_step(batches)
            self.global_step += 1
            if self.rank == 0:
                print(f"[{self.global_step}] {loss:.4f}")
            if self.global_step % self.args.save_every == 0:
                self.save_checkpoint()


if __name__ == "__main__":
    with process_group():
        Trainer(Args()).fit()
