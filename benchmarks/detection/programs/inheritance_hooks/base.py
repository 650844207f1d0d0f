"""The loop; what to train, and how it is spread, is a subclass's business."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class BaseTrainer(abc.ABC):
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, epochs: int, accumulation: int, directory: Path) -> None:
        self.epochs = epochs
        self.accumulation = accumulation
        self.directory = directory
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def setup(self) -> None:
        torch.manual_seed(0)
        self.model = self.build_model().to(self.device)
        self.before_sharding()
        self.shard()
        self.optimizer = self.build_optimizer()
        torch.manual_seed(1 + dist.get_rank())

    @abc.abstractmethod
    def build_model(self) -> nn.Module: ...

    @abc.abstractmethod
    def batches(self) -> Iterable[tuple[Tensor, Tensor]]: ...

    @abc.abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor: ...

    def before_sharding(self) -> None:  # noqa: B027
        """For freezing and the like; nothing by default."""

    def units(self) -> Iterable[nn.Module]:
        return ()

    def shard(self) -> None:
        for unit in self.units():
            fully_shard(unit)
        fully_shard(self.model)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def after_epoch(self, epoch: int) -> None:
        self.save(self.directory / f"{epoch}.pt")

    def save(self, path: Path) -> None:
        state = get_model_state_dict(
            self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        if dist.get_rank() == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, path)

    def backward_pass(self, inputs: Tensor, target: Tensor) -> Tensor:
        output = self.model(inputs)
        loss = self.loss(output, target)
        (loss / self.accumulation).backward()
        return loss.detach()

    def run(self) -> None:
        self.setup()
        for epoch in range(self.epochs):
            for i, (inputs, target) in enumerate(self.batches(), start=1):
                stepping = i % self.accumulation == 0
                self.model.set_requires_gradient_sync(stepping)
                loss = self.backward_pass(inputs, target)
                if stepping:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} loss {loss.item():.4f}")
            self.after_epoch(epoch)
