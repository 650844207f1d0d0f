"""Random numbers of sharded tensors: equal on replicas, different on shards, as on CUDA.

On a mesh of CPUs, PyTorch lets every rank draw from its own generator, so that equally seeded ranks
fill all shards alike, and replicas differ where the ranks are seeded differently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import _random as tracking

from fsdplint.verify.rank.shim import random
from fsdplint.verify.rank.shim.devices import MACHINE
from fsdplint.verify.rank.shim.patching import replace


def install() -> None:
    """Give DTensor a tracker where it has none."""
    replace(tracking, "is_rng_supported_mesh", lambda mesh: True)
    replace(tracking, "OffsetBasedRNGTracker", ShardTracker)


class ShardTracker:
    """`OffsetBasedRNGTracker`: a seed for each operation, drawn alike on all ranks, and each shard.

    Like it, takes rank 0's state of the device's generator when it is made.
    """

    def __init__(self, device_mesh: Any, run_state_sync: bool = True) -> None:
        self.distribute_region_enabled = True
        if run_state_sync:
            state = random.get_rng_state()
            dist.broadcast(state, 0)
            random.set_rng_state(state)

    @contextlib.contextmanager
    def _distribute_region(
        self, spec: Any, generator: torch.Generator | None = None
    ) -> Iterator[None]:
        source = generator or random.default_generators[MACHINE.current]
        seed = int(torch.randint(2**62, (), generator=source))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed + _shard(spec))
            yield


def _shard(spec: Any) -> int:
    """Which shard of the tensor this rank holds; the same on all of its replicas."""
    index = 0
    for dim, placement in enumerate(spec.placements):
        if not (placement.is_replicate() or placement.is_partial()):
            index = index * spec.mesh.size(dim) + spec.mesh.get_coordinate()[dim]
    return index
