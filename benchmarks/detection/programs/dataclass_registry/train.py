"""Autoencoder training; everything is chosen in a dataclass."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

import components  # noqa: F401  registers the builders
import torch
import torch.distributed as dist
from components import adamw
from registry import MODELS, build
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.functional import mse_loss


@dataclass
class ModelConfig:
    name: str = "gated"
    options: dict = field(default_factory=lambda: {"inputs": 6, "size": 16, "depth": 3})


@dataclass
class OptimConfig:
    lr: float = 1e-2
    weight_decay: float = 0.01
    max_norm: float | None = 1.0


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    steps: int = 3
    micro_batches: int = 2
    seed: int = 0
    output: str = "autoencoder.pt"


def from_argv(argv: list[str]) -> Config:
    config = Config()
    for item in argv:
        key, _, value = item.partition("=")
        config = replace(config, **{key: type(getattr(config, key))(value)})
    return config


def shard_model(model: torch.nn.Module) -> torch.nn.Module:
    for child in model.hidden:
        fully_shard(child)
    return fully_shard(model)


def train(config: Config, device: torch.device) -> FSDPModule:
    torch.manual_seed(config.seed)
    autoencoder = build(MODELS, config.model.name, **config.model.options).to(device)
    shard_model(autoencoder)
    optimizer = adamw(autoencoder, config.optim.lr, config.optim.weight_decay)
    torch.manual_seed(config.seed + 1 + dist.get_rank())
    for step in range(config.steps):
        for index in range(config.micro_batches):
            batch = torch.randn(8, 6, device=device)
            autoencoder.set_requires_gradient_sync(index == config.micro_batches - 1)
            loss = mse_loss(autoencoder(batch), batch) / config.micro_batches
            loss.backward()
        if config.optim.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), config.optim.max_norm)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}")
    return autoencoder


def main() -> None:
    config = from_argv(sys.argv[1:])
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    autoencoder = train(config, device)
    weights = get_model_state_dict(
        autoencoder, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save(weights, config.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
