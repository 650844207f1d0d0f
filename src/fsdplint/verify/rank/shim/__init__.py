"""Let an unmodified script written for CUDA and NCCL run on CPU and gloo.

`devices` says what stands for what; the other modules put that in place, one part of PyTorch each.
Nothing is copied or emulated per operation: tensors are CPU tensors, and only what takes a device,
a backend or a CUDA object is wrapped.
"""

from __future__ import annotations

import torch

from fsdplint.verify.rank.patch import overlay
from fsdplint.verify.rank.shim import (
    cuda,
    distributed,
    memory,
    random,
    sharding,
    streams,
    tensors,
    training,
)
from fsdplint.verify.rank.shim.devices import MACHINE, Unmappable, logical_device

__all__ = ["Unmappable", "install", "logical_device"]


def install(local_rank: int, local_world_size: int) -> None:
    """Make this process see `local_world_size` CUDA devices, for good.

    Call it once, when `torch.distributed.fsdp` and `torch._dynamo` are imported and before the
    script imports anything. `torch.cuda` and `torch.distributed` change for the whole process.
    """
    MACHINE.count, MACHINE.local_rank = local_world_size, local_rank
    random.install()
    streams.install()
    for part in (cuda, memory, random, streams):
        overlay(torch.cuda, part)
    for part in (memory, streams):
        overlay(torch.accelerator, part)
    cuda.install()
    tensors.install()
    distributed.install()
    sharding.install()
    training.install()
