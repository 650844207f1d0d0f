"""Process group, device and sharding, in one place."""

from __future__ import annotations

import os
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from .nn import Layer

M = TypeVar("M", bound=nn.Module)


def init() -> torch.device:
    if torch.cuda.is_available():
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("gloo")
    return torch.device("cpu")


def shard(model: M) -> M:
    """Shard the layers, then the rest; in place, and returned for chaining."""
    for module in model.modules():
        if isinstance(module, Layer):
            fully_shard(module)
    return fully_shard(model)


def is_main() -> bool:
    return dist.get_rank() == 0
