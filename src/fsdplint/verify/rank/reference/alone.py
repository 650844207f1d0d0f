"""One process instead of many: every mesh and group has size 1, so nothing is sharded.

The script still runs FSDP, which over one rank only gathers and casts. Calls that tune how
gradients are reduced between ranks have no effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import device_mesh, fsdp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.optim import Optimizer

from fsdplint.verify.rank.patch import wrap

_TUNING = (
    "set_all_reduce_hook",
    "set_custom_reduce_scatter",
    "set_gradient_divide_factor",
    "set_is_last_backward",
    "set_reduce_scatter_divide_factor",
    "set_requires_all_reduce",
    "set_requires_gradient_sync",
)


def install() -> Moved:
    """Make groups and meshes small; return what sharding does to parameters from now on."""
    wrap(device_mesh, "init_device_mesh", _init_device_mesh)
    wrap(DeviceMesh, "__init__", _construct_mesh)
    wrap(dist, "new_group", _new_group)
    for index, name in enumerate(("get_rank", "get_world_size")):
        wrap(dist, name, functools.partial(_ask, index))
    for name in _TUNING:
        wrap(FSDPModule, name, _nothing)
    wrap(FullyShardedDataParallel, "register_comm_hook", _nothing)
    moved = Moved()
    wrap(fsdp, "fully_shard", moved.fully_shard)
    return moved


_standing_for: list[tuple[int, int]] = []


@contextmanager
def standing_for(rank: int, world: int) -> Iterator[None]:
    """Make `get_rank` and `get_world_size` return the values of the sharded run."""
    _standing_for.append((rank, world))
    try:
        yield
    finally:
        _standing_for.pop()


def _ask(index: int, original: Callable[..., int], group: Any = None) -> int:
    if _standing_for and group is None:
        return _standing_for[-1][index]
    return original(group)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _init_device_mesh(
    original: Any, device_type: str, mesh_shape: Any, *args: Any, **kwargs: Any
) -> Any:
    return original(device_type, (1,) * len(mesh_shape), *args, **kwargs)


def _construct_mesh(
    original: Any, self: Any, device_type: str, mesh: Any = None, *args: Any, **kwargs: Any
) -> None:
    if mesh is not None:
        mesh = torch.zeros((1,) * torch.as_tensor(mesh).ndim, dtype=torch.int)
    original(self, device_type, mesh, *args, **kwargs)


def _new_group(original: Any, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
    return original(None if ranks is None else [0], *args, **kwargs)


class Moved:
    """Which parameters replaced which: without sharding, nothing is replaced."""

    def __init__(self) -> None:
        self._taken: list[tuple[nn.Parameter, nn.Module, str]] = []

    def fully_shard(self, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Run ``fully_shard``, and remember the parameters that it replaces."""
        modules = [module] if isinstance(module, nn.Module) else list(module)
        self._taken += [
            (parameter, inner, name)
            for outer in modules
            for inner in outer.modules()
            for name, parameter in inner._parameters.items()
            if parameter is not None
        ]
        return original(module, *args, **kwargs)

    def follow(self, optimizer: Optimizer) -> None:
        """Give an optimizer that was built before sharding what its parameters have become."""
        now = {id(old): module._parameters[name] for old, module, name in reversed(self._taken)}
        for group in optimizer.param_groups:
            group["params"] = [now.get(id(p), p) for p in group["params"]]
