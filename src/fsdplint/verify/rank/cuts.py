"""How a tensor is cut into ranks' parts, and which part this rank's is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held


@dataclass(frozen=True)
class Cut:
    """This rank's part of a tensor.

    Attributes:
        ranks: who hold the tensor together.
        position: which part it is, of `of` parts, along each dimension of the mesh that cuts.
        copies: how many of `ranks` hold the same part.
    """

    ranks: tuple[int, ...]
    position: tuple[int, ...]
    of: tuple[int, ...]
    copies: int = 1


def cut(tensor: Any, held: Held | None = None) -> Cut | None:
    """Returns how a tensor is cut; None for a whole one.

    Args:
        held: the parameter that a plain tensor is the local part of.
    """
    if isinstance(tensor, DTensor):
        return _of_dtensor(tensor)
    if isinstance(tensor, ShardedTensor):
        return _of_sharded(tensor)
    if held is None:
        return None
    if isinstance(held.unit, FullyShardedDataParallel):
        return _of_fsdp1(held.unit)
    return cut(held.parameter)


def _of_dtensor(tensor: DTensor) -> Cut | None:
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    dimensions = list(zip(tensor.placements, mesh.shape, coordinate, strict=True))
    cutting = [
        (at, size)
        for placement, size, at in dimensions
        if size > 1 and not placement.is_replicate()
    ]
    if not cutting:
        return None
    copies = 1
    for placement, size, _ in dimensions:
        copies *= size if placement.is_replicate() else 1
    ranks = tuple(mesh.mesh.flatten().tolist())
    return Cut(ranks, tuple(at for at, _ in cutting), tuple(size for _, size in cutting), copies)


def _of_fsdp1(unit: FullyShardedDataParallel) -> Cut | None:
    group = access.fsdp1_group(unit)
    if group is None or group.size() == 1:
        return None
    ranks = tuple(dist.get_process_group_ranks(group))
    return Cut(ranks, (group.rank(),), (group.size(),))


def _of_sharded(tensor: ShardedTensor) -> Cut | None:
    shards = tensor.metadata().shards_metadata
    if len(shards) < 2:
        return None
    places = [shard.placement for shard in shards]
    ranks = [place.rank() for place in places if place is not None]
    mine = [shard.metadata.placement for shard in tensor.local_shards()]
    at = mine[0].rank() if mine and mine[0] is not None else dist.get_rank()
    position = ranks.index(at) if at in ranks else at or 0
    return Cut(tuple(r or 0 for r in ranks), (position,), (dist.get_world_size(),))


def elements(tensor: Tensor) -> tuple[int, int]:
    """Returns how many elements this rank has of a tensor, and how many there are."""
    if isinstance(tensor, ShardedTensor):
        mine = sum(shard.tensor.numel() for shard in tensor.local_shards())
        return mine, int(tensor.size().numel())
    return access.local(tensor).numel(), tensor.numel()
