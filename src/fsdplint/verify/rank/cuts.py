"""How a tensor is cut into ranks' parts, and which part this rank's is."""

from __future__ import annotations

import itertools
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
        position: which part it is, of `of`, along each dimension of the mesh that cuts.
        group: those of `ranks` whose parts make one copy of it, this rank among them.
    """

    ranks: tuple[int, ...]
    position: tuple[int, ...]
    of: tuple[int, ...]
    group: tuple[int, ...]


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
    cuts = [
        size > 1 and not placement.is_replicate()
        for placement, size in zip(tensor.placements, mesh.shape, strict=True)
    ]
    if not any(cuts):
        return None
    along = tuple(
        slice(None) if cuts_it else at for cuts_it, at in zip(cuts, coordinate, strict=True)
    )
    return Cut(
        tuple(mesh.mesh.flatten().tolist()),
        tuple(itertools.compress(coordinate, cuts)),
        tuple(itertools.compress(mesh.shape, cuts)),
        tuple(mesh.mesh[along].flatten().tolist()),
    )


def _of_fsdp1(unit: FullyShardedDataParallel) -> Cut | None:
    group = access.fsdp1_group(unit)
    if group is None or group.size() == 1:
        return None
    ranks = tuple(dist.get_process_group_ranks(group))
    return Cut(ranks, (group.rank(),), (group.size(),), ranks)


def _of_sharded(tensor: ShardedTensor) -> Cut | None:
    shards = tensor.metadata().shards_metadata
    if len(shards) < 2:
        return None
    ranks = tuple(shard.placement.rank() or 0 for shard in shards if shard.placement)
    mine = next((shard.metadata.placement for shard in tensor.local_shards()), None)
    at = ranks.index(mine.rank() or 0) if mine else len(ranks)  # no shard of it is here
    return Cut(ranks, (at,), (len(ranks),), ranks)


def elements(tensor: Tensor) -> tuple[int, int]:
    """Returns how many elements this rank has of a tensor, and how many there are."""
    if isinstance(tensor, ShardedTensor):
        mine = sum(shard.tensor.numel() for shard in tensor.local_shards())
        return mine, int(tensor.size().numel())
    return access.local(tensor).numel(), tensor.numel()
