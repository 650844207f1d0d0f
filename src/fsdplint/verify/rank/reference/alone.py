"""One process in the place of many: every mesh and group has size 1, so that nothing is divided.

The script still runs FSDP, which over one rank only gathers and casts; what tunes how gradients are
reduced between ranks is switched off.
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

from fsdplint.verify.rank.patch import replace_everywhere, wrap_method

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
    """Makes groups and meshes small; returns what sharding does to parameters from now on."""
    mesh = device_mesh.init_device_mesh
    replace_everywhere(mesh, _small_mesh(mesh))
    wrap_method(DeviceMesh, "__init__", _small_ranks)
    replace_everywhere(dist.new_group, _small_group(dist.new_group))
    for index, ask in enumerate((dist.get_rank, dist.get_world_size)):
        replace_everywhere(ask, _asked(ask, index))
    for name in _TUNING:
        if hasattr(FSDPModule, name):
            setattr(FSDPModule, name, _nothing)
    setattr(FullyShardedDataParallel, "register_comm_hook", _nothing)  # noqa: B010  -- a method
    moved = Moved()
    replace_everywhere(fsdp.fully_shard, moved.watch(fsdp.fully_shard))
    return moved


_standing_for: list[tuple[int, int]] = []


@contextmanager
def standing_for(rank: int, world: int) -> Iterator[None]:
    """Lets code that asks for its rank, or how many there are, hear those of the sharded run."""
    _standing_for.append((rank, world))
    try:
        yield
    finally:
        _standing_for.pop()


def _asked(original: Callable[..., int], index: int) -> Callable[..., int]:
    @functools.wraps(original)
    def ask(group: Any = None) -> int:
        if _standing_for and group is None:
            return _standing_for[-1][index]
        return original(group)

    return ask


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _small_mesh(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_device_mesh(device_type: str, mesh_shape: Any, *args: Any, **kwargs: Any) -> Any:
        return original(device_type, (1,) * len(mesh_shape), *args, **kwargs)

    return init_device_mesh


def _small_ranks(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def construct(self: Any, device_type: str, mesh: Any = None, *args: Any, **kwargs: Any) -> None:
        if mesh is not None:
            mesh = torch.zeros((1,) * torch.as_tensor(mesh).ndim, dtype=torch.int)
        original(self, device_type, mesh, *args, **kwargs)

    return construct


def _small_group(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(None if ranks is None else [0], *args, **kwargs)

    return new_group


class Moved:
    """Which parameters took the place of which: nothing is replaced where nothing is sharded."""

    def __init__(self) -> None:
        self._taken: list[tuple[nn.Parameter, nn.Module, str]] = []

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps ``fully_shard``."""

        @functools.wraps(original)
        def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
            modules = [module] if isinstance(module, nn.Module) else list(module)
            self._taken += [
                (parameter, inner, name)
                for outer in modules
                for inner in outer.modules()
                for name, parameter in inner._parameters.items()
                if parameter is not None
            ]
            return original(module, *args, **kwargs)

        return fully_shard

    def follow(self, optimizer: Optimizer) -> None:
        """Gives an optimizer that was built before sharding what its parameters have become."""
        now = {id(old): module._parameters[name] for old, module, name in reversed(self._taken)}
        for group in optimizer.param_groups:
            group["params"] = [now.get(id(p), p) for p in group["params"]]
