"""Where a rank's part of each parameter lies in the whole; like `access`, it reads FSDP's own
attributes (torch 2.6-2.15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held
from fsdplint.verify.rank.reference.region import Box, Region, whole

SHORT = (torch.float16, torch.bfloat16)


class Incomparable(Exception):
    """The runs cannot be compared; the message says why, for the user."""


@dataclass(frozen=True)
class Piece:
    """A parameter as this rank has it.

    Attributes:
        parameter: what an optimizer holds; FSDP1 may have flattened several into it.
        unit: its FSDP unit, or None.
        degree: how many ranks its gradients are averaged over.
        span: for FSDP1, offset and length in this rank's part of the unit's flat parameter.
        flat: that one.
    """

    name: str
    region: Region | Box
    parameter: nn.Parameter
    unit: nn.Module | None
    degree: int
    span: tuple[int, int] | None = None
    flat: Any = None

    def value(self) -> Tensor:
        """Return this rank's part of it; writing to that writes to the parameter."""
        if self.span is None:
            return access.local(self.parameter)
        # What the flat parameter's own data are depends on whether it is gathered just now.
        shard: Tensor = getattr(self.flat, "_local_shard", self.flat)
        return shard.detach().narrow(0, *self.span)

    def gradient(self) -> Tensor | None:
        """Return this rank's part of its gradient; None where there is none, or no reduced one."""
        if self.parameter.grad is None:
            return None
        gradient = access.local(self.parameter.grad)
        if self.span is None:
            return gradient
        if self.parameter is not self.flat:
            return gradient if gradient.numel() == self.span[1] else None
        return gradient.narrow(0, *self.span) if gradient.numel() == self._size() else None

    def _size(self) -> int:
        return int(getattr(self.flat, "_local_shard", self.flat).numel())

    def waiting(self) -> bool:
        """True if gradients of it may wait to be reduced."""
        if self.unit is None:
            return False
        if self.flat is not None:
            saved = getattr(self.flat, "_saved_grad_shard", None)
            return self.flat.grad is not None or saved is not None
        return bool(access.unreduced(self.parameter, self.unit))

    def set_gradient(self, part: Tensor) -> None:
        """Replace this rank's part of the gradient by `part`."""
        if self.parameter.grad is None:
            self.parameter.grad = torch.zeros_like(self.parameter)
        gradient = self.gradient()
        if gradient is not None:
            gradient.copy_(part.reshape(gradient.shape))


def pieces(model: nn.Module, *, tensor_parallel: bool = False) -> Iterator[Piece]:
    """Yield this rank's piece of every parameter, each original of FSDP1's flat ones apart.

    Args:
        tensor_parallel: FSDP2's parameters may be divided by tensor parallelism too.

    Raises:
        Incomparable: a parameter is divided in a way that is not known.
    """
    prefixes = {id(module): name for name, module in model.named_modules()}
    for held in access.parameters(model):
        if isinstance(held.unit, FullyShardedDataParallel):
            yield from _fsdp1(held, held.unit, prefixes)
        elif isinstance(held.parameter, DTensor):
            given = held.parameter
            region = boxed(held.name, given) if tensor_parallel else _placed(held, given)
            degree = held.parameter.device_mesh.size()
            yield Piece(held.name, region, held.parameter, held.unit, degree)
        else:
            yield Piece(held.name, whole(held.shape), held.parameter, None, 1)


def boxed(name: str, tensor: DTensor) -> Box:
    """Return the part of a DTensor that is sharded in any number of mesh dimensions.

    Source: ``torch.distributed.tensor._utils`` (torch 2.6-2.15), also for `_StridedShard`, with
    which FSDP2 divides what tensor parallelism has divided.
    """
    known = all(isinstance(p, Replicate | Shard | _StridedShard) for p in tensor.placements)
    shape = tuple(tensor.shape)
    lengths, starts = compute_local_shape_and_global_offset(
        shape, tensor.device_mesh, tensor.placements
    )
    if not known or tuple(lengths) != tuple(access.local(tensor).shape):
        raise Incomparable(f"how `{name}` is sharded is unknown")
    return Box(shape, tuple(starts), tuple(lengths))


def _placed(held: Held, parameter: DTensor) -> Region:
    """Return the region of a DTensor that is sharded in one mesh dimension at most.

    Source: `Shard` divides as `torch.chunk` does.
    """
    mesh, coordinate = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    shards = [i for i, p in enumerate(parameter.placements) if not isinstance(p, Replicate)]
    simple = all(type(parameter.placements[i]) is Shard for i in shards)
    if len(shards) > 1 or not simple or coordinate is None or _tensor_parallel(held):
        raise Incomparable(f"`{held.name}` is also sharded by tensor parallelism")
    if not shards:
        return whole(held.shape)
    dim = parameter.placements[shards[0]].dim  # type: ignore[attr-defined]
    size = held.shape[dim]
    chunk = ceil(size / mesh.size(shards[0]))
    start = min(coordinate[shards[0]] * chunk, size)
    return Region(held.shape, dim, start, min(chunk, size - start))


def _tensor_parallel(held: Held) -> bool:
    return any(
        getattr(candidate, "is_dtensor", False)
        for group in (access.groups(held.unit) if held.unit is not None else [])
        for candidate in group.fsdp_params
        if candidate.sharded_param is held.parameter
    )


def _fsdp1(held: Held, unit: FullyShardedDataParallel, prefixes: dict[int, str]) -> Iterator[Piece]:
    """Yield the piece of each original parameter that FSDP1 has flattened into one."""
    flat: Any = unit._handle.flat_param  # type: ignore[union-attr]
    if any(each is not None for each in getattr(flat, "_param_extensions", None) or ()):
        raise Incomparable(f"`{held.name}` is also sharded by tensor parallelism")
    across = getattr(unit, "_inter_node_pg", None)
    group: Any = unit.process_group
    degree = group.size() * (across.size() if across is not None else 1)
    for i, (info, where) in enumerate(zip(flat._param_infos, flat._shard_param_infos, strict=True)):
        if flat._params is not None and flat._params[i] is not held.parameter:
            continue
        prefix = prefixes.get(id(info.module), "")
        name = access.clean(f"{prefix}.{info.param_name}" if prefix else info.param_name)
        start, length = where.intra_param_start_idx or 0, where.numel_in_shard or 0
        region = Region(tuple(flat._shapes[i]), None, start, length)
        span = (where.offset_in_shard or 0, length)
        yield Piece(name, region, held.parameter, unit, degree, span, flat)


def short(model: nn.Module) -> bool:
    """True if parameters, or what units compute and reduce in, have 16 bits."""
    dtypes: list[Any] = [held.parameter.dtype for held in access.parameters(model)]
    for module in model.modules():
        for group in access.groups(module):
            for parameter in group.fsdp_params:
                dtypes += [
                    getattr(parameter, name, None) for name in ("param_dtype", "reduce_dtype")
                ]
        handle = getattr(module, "_handle", None)
        if isinstance(module, FullyShardedDataParallel) and handle is not None:
            dtypes += [handle._fwd_bwd_param_dtype, handle._reduce_dtype]
    return any(dtype in SHORT for dtype in dtypes)
