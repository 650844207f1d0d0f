"""The only reader of FSDP's private attributes; they differ between torch 2.6, 2.13 and 2.15.

It finds the live parameters of a model, how a tensor is cut into the ranks' parts, and their bytes.
What cannot be read is None or absent: unknown, never a verdict.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

Entry = tuple[tuple[int, str], tuple[nn.Parameter, nn.Module, tuple[int, ...], int]]


@dataclass(frozen=True)
class Held:
    """A live parameter of a model.

    Attributes:
        name: in the model, without what wrappers add to it.
        parameter: the object an optimizer has to hold; sharded where its unit shards it.
        unit: the module of its FSDP unit, or None.
        owner: the module it is registered in, and `key`: under which name.
        shape: of the whole tensor.
        flat: for FSDP1's flat parameters, how many originals it holds.
    """

    name: str
    parameter: nn.Parameter
    unit: nn.Module | None
    owner: nn.Module
    key: str
    shape: tuple[int, ...]
    flat: int = 0


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, detached; a plain tensor is its own part."""
    if isinstance(tensor, DTensor):
        tensor = tensor._local_tensor  # to_local() would wait for a pending collective
    return tensor.detach()


def groups(module: nn.Module) -> list[Any]:
    """Return the FSDP2 parameter groups of a unit (one, or several with per-parameter meshes)."""
    state = module._get_fsdp_state() if isinstance(module, FSDPModule) else None
    plural = getattr(state, "_fsdp_param_groups", None)
    if plural is not None:
        return list(plural)
    single = getattr(state, "_fsdp_param_group", None)
    return [] if single is None else [single]


def in_hooks(module: FSDPModule) -> bool:
    """True if a forward that begins now comes out of its unit's pre-forward hook.

    Source: `FSDPState._pre_forward` sets FORWARD, or finds PRE_BACKWARD under activation
    checkpointing (torch 2.6-2.15).
    """
    return module._get_fsdp_state()._training_state.name in ("FORWARD", "PRE_BACKWARD")


def parameters(model: nn.Module) -> Iterator[Held]:
    """Yield every live parameter of a model once, sharded ones in their sharded form."""
    sharded = dict(_fsdp2_parameters(model)) | dict(_fsdp1_parameters(model))
    seen: set[int] = set()
    for prefix, owner in model.named_modules():
        for key, registered in list(owner._parameters.items()):
            if registered is None:
                continue
            held = sharded.get((id(owner), key))
            parameter = held[0] if held else registered
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            name = clean(f"{prefix}.{key}" if prefix else key)
            unit, shape, flat = held[1:] if held else (None, tuple(registered.shape), 0)
            yield Held(name, parameter, unit, owner, key, shape, flat)


def _fsdp2_parameters(model: nn.Module) -> Iterator[Entry]:
    for module in model.modules():
        for group in groups(module):
            for parameter in group.fsdp_params:
                info, sharded = parameter._module_info, parameter.sharded_param
                value = (sharded, module, tuple(sharded.shape), 0)
                yield (id(info.module), info.param_name), value
                for owner, key in zip(info.shared_modules, info.shared_param_names, strict=True):
                    yield (id(owner), key), value


def _fsdp1_parameters(model: nn.Module) -> Iterator[Entry]:
    """Yield FSDP1's flat parameters, or the originals where it keeps them (`use_orig_params`)."""
    for module in model.modules():
        handle = getattr(module, "_handle", None)
        if not isinstance(module, FullyShardedDataParallel) or handle is None:
            continue
        flat = handle.flat_param
        if flat._params is None:
            key = (id(module.module), "_flat_param")
            whole = (sum(map(prod, _shapes(flat))),)
            yield key, (flat, module, whole, flat._num_params)
            continue
        for info, original, shape in zip(
            flat._param_infos, flat._params, _shapes(flat), strict=True
        ):
            yield (id(info.module), info.param_name), (original, module, shape, 0)


def _shapes(flat: Any) -> list[tuple[int, ...]]:
    """Return the whole shapes of what FSDP1 has flattened, which may be DTensors of tensor
    parallelism.

    Source: `DTensorExtensions.pre_flatten_transform` returns their `DTensorSpec` (torch 2.6-2.15).
    """
    specs = getattr(flat, "_param_extensions", None) or [None] * len(flat._shapes)
    pairs = zip(specs, flat._shapes, strict=True)
    return [tuple(shape if spec is None else spec.shape) for spec, shape in pairs]


def flattened(model: nn.Module) -> Iterator[tuple[tuple[int, str], tuple[int, int]]]:
    """Yield what FSDP1 has flattened, by module and name: the flat parameter, and its place there.

    Modules of one unit that share a parameter have one place.
    """
    for module in model.modules():
        handle = getattr(module, "_handle", None)
        if not isinstance(module, FullyShardedDataParallel) or handle is None:
            continue
        flat = handle.flat_param
        places = {}
        for index, info in enumerate(flat._param_infos):
            places[id(info.module), info.param_name] = index
            yield (id(info.module), info.param_name), (id(flat), index)
        for shared in flat._shared_param_infos:
            index = places[id(shared.prim_module), shared.prim_param_name]
            yield (id(shared.module), shared.param_name), (id(flat), index)


def class_name(module: nn.Module) -> str:
    """Return a module's class as its author named it, without what is wrapped around it."""
    inner = module
    while isinstance(inside := _inside(inner), nn.Module):
        inner = inside
    name = type(inner).__name__
    return name.removeprefix("FSDP") if isinstance(inner, FSDPModule) else name


def _inside(module: nn.Module) -> Any:
    """Return what a wrapper of FSDP1, activation checkpointing or compile holds, or None."""
    names = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")
    return next((module._modules[name] for name in names if name in module._modules), None)


def clean(name: str) -> str:
    """Take out what FSDP1, activation checkpointing and compile put into a parameter's name."""
    for part in ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."):
        name = name.replace(part, "")
    return name


def unsharded_gradients(unit: nn.Module | None) -> bool:
    """True if an FSDP1 unit's gradients have the unsharded size, as `no_sync` leaves them."""
    handle = getattr(unit, "_handle", None)
    if handle is None:
        return False
    flat = handle.flat_param
    originals = [flat] if flat._params is None else flat._params
    return any(p.grad is not None and p.grad.shape != p.shape for p in originals)


def defers_reduction(unit: nn.Module | None) -> bool:
    """True if FSDP1's `no_sync` is active: gradients of NO_SHARD have one size, reduced or not."""
    return isinstance(unit, FullyShardedDataParallel) and not unit._sync_gradients


def unreduced(parameter: nn.Parameter, unit: nn.Module | None) -> bool | None:
    """True if a gradient of this parameter waits to be reduced; None where unknown.

    FSDP2 keeps it in `unsharded_accumulated_grad` or `unsharded_param.grad`, and under HSDP in the
    group's `_partial_reduce_output`; FSDP1 in a gradient that has the unsharded size.
    """
    if isinstance(unit, FullyShardedDataParallel):
        return unsharded_gradients(unit)
    for group in groups(unit) if unit is not None else []:
        for candidate in group.fsdp_params:
            if candidate.sharded_param is parameter:
                return _waiting(group, candidate)
    return None


def _waiting(group: Any, parameter: Any) -> bool:
    # The unsharded parameter itself is not touched: its storage may be freed.
    unsharded = parameter.__dict__.get("_unsharded_param", None)
    return (
        parameter.unsharded_accumulated_grad is not None
        or getattr(group, "_partial_reduce_output", None) is not None
        or (unsharded is not None and unsharded.grad is not None)
    )


def sharded_form(unit: nn.Module, parameter: nn.Parameter) -> nn.Parameter | None:
    """Return the sharded form of an unsharded parameter of an FSDP2 unit."""
    for group in groups(unit):
        for candidate in group.fsdp_params:
            if candidate.__dict__.get("_unsharded_param") is parameter:
                return cast(nn.Parameter, candidate.sharded_param)
    return None


def ignored(module: FullyShardedDataParallel) -> set[nn.Parameter]:
    """Return the parameters that an FSDP1 unit ignores."""
    return set(getattr(module, "_ignored_params", None) or ())


def held_by(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that an optimizer holds."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def originals(held: Held) -> list[tuple[str, tuple[int, ...]]]:
    """Return the names and whole shapes of the parameters that one live parameter represents:
    itself, or those that FSDP1 has flattened into it."""
    if not held.flat:
        return [(held.name, held.shape)]
    prefix = held.name.removesuffix("_flat_param")
    flat: Any = held.parameter
    names = [clean(f"{prefix}{name}") for name in flat._fqns]
    return list(zip(names, _shapes(flat), strict=True))


def fsdp1_group(unit: FullyShardedDataParallel) -> ProcessGroup | None:
    """Return the ranks that divide an FSDP1 unit's parameters; None where none do."""
    handle = unit._handle
    return unit.process_group if handle is not None and handle.uses_sharded_strategy else None


def fsdp1_replicas(unit: nn.Module | None) -> tuple[int, ...]:
    """Return the ranks that each keep all of an FSDP1 unit's parameters (``NO_SHARD``)."""
    if not isinstance(unit, FullyShardedDataParallel) or unit._handle is None:
        return ()
    shared = None if unit._handle.uses_sharded_strategy else unit.process_group
    return () if shared is None else tuple(dist.get_process_group_ranks(shared))


def is_at_work(model: nn.Module) -> bool:
    """True if an FSDP1 unit was left in its forward or backward, with its parameters gathered."""
    return any(
        isinstance(module, FullyShardedDataParallel) and module.training_state.name != "IDLE"
        for module in model.modules()
    )


def divided_over(unit: nn.Module) -> int:
    """Return over how many ranks FSDP divides a unit's parameters; 0 where it has none."""
    if isinstance(unit, FullyShardedDataParallel):
        group = fsdp1_group(unit)
        return (1 if group is None else group.size()) if unit._handle is not None else 0
    # A group that only replicates has another class of mesh, without that size.
    sizes = [getattr(group.mesh_info, "shard_mesh_size", 1) for group in groups(unit)]
    return max(sizes, default=0)


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
    """Return how a tensor is cut; None for a whole one.

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
    """Return how a DTensor is cut; mesh dimensions of size 1 and replicas do not cut."""
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
    group = fsdp1_group(unit)
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
    """Return how many elements this rank has of a tensor, and how many there are."""
    if isinstance(tensor, ShardedTensor):
        mine = sum(shard.tensor.numel() for shard in tensor.local_shards())
        return mine, int(tensor.size().numel())
    return local(tensor).numel(), tensor.numel()


def address(tensor: Tensor) -> int:
    """Return where this rank's part of a tensor lies in memory; 0 for one without elements."""
    if isinstance(tensor, ShardedTensor):
        shards = tensor.local_shards()
        return shards[0].tensor.data_ptr() if shards else 0
    return local(tensor).data_ptr()


def digest(part: Tensor) -> str:
    """Return a digest of a tensor's bytes, computed without NumPy."""
    data = part.detach().cpu().contiguous()
    size = data.numel() * data.element_size()
    held = (ctypes.c_char * size).from_address(data.data_ptr()) if size else b""
    return hashlib.sha1(held, usedforsecurity=False).hexdigest()
