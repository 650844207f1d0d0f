"""`torch.distributed` for NCCL scripts: groups and meshes on gloo, with NCCL's reductions."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.checkpoint import state_dict_saver

from fsdplint.verify.rank.patch import replace, wrap
from fsdplint.verify.rank.shim.devices import (
    BACKENDS,
    CPU,
    MACHINE,
    choose,
    cpu_backend,
    cpu_device,
    cpu_type,
    cuda_index,
)

Group = torch._C._distributed_c10d.ProcessGroup
ReduceOp = dist.ReduceOp

# The requested backend, by the name of the group.
_asked: dict[str, str] = {}
# Every group, so that none is taken down: torch 2.6 waits for gloo's threads while it holds the
# interpreter's lock, which one of them may be waiting for. NCCL has no such threads.
_kept: list[Any] = []
_rounds = itertools.count()
# Where a group has gloo for the CPU beside NCCL, another one for what goes on in the background:
# on one backend, its collectives would meet those of the training.
_background: dict[str, Any] = {}
_new_group = c10d.new_group
# Which argument of a process group's method is reduced, and whether it is also the result.
_REDUCTIONS = {
    "allreduce": (0, True),
    "allreduce_coalesced": (0, True),
    "reduce": (0, True),
    "reduce_scatter": (1, False),
    "_reduce_scatter_base": (1, False),
    "reduce_scatter_single": (1, False),
    "reduce_scatter_tensor_coalesced": (1, False),
    "reduce_scatter_single_coalesced": (1, False),
}
# NCCL asks only for the right number of elements, and takes tensors that require gradients.
_IN_ONE_PIECE = (
    *("_allgather_base", "all_gather_single"),
    *("_reduce_scatter_base", "reduce_scatter_single"),
)


class ProcessGroupNCCL:
    """A holder of NCCL's options, which gloo does not use."""

    class Options:
        """`ProcessGroupNCCL.Options`."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = _Config()


class _Config:
    """Any setting of a NCCL communicator."""


def install() -> None:
    """Map backends, device arguments and reductions."""
    # Groups, meshes and FSDP ask for both; the answer is where tensors are.
    replace(torch._C, "_get_accelerator", lambda check=None: CPU)
    replace(c10d, "is_nccl_available", lambda: True)
    wrap(c10d, "is_backend_available", lambda original, name: original(cpu_backend(name)))
    wrap(c10d, "get_backend", _get_backend)
    wrap(c10d, "init_process_group", _init_process_group)
    wrap(c10d, "_new_group_with_tag", _new_group_with_tag)
    wrap(c10d, "rendezvous", _rendezvous)
    for module in (c10d, dist):
        if not hasattr(module, "ProcessGroupNCCL"):
            setattr(module, "ProcessGroupNCCL", ProcessGroupNCCL)  # noqa: B010  -- not declared
    wrap(state_dict_saver, "async_save", _async_save)
    wrap(Group, "_get_backend", lambda original, self, device: original(self, cpu_device(device)))
    wrap(device_mesh, "init_device_mesh", _init_device_mesh)
    wrap(device_mesh.DeviceMesh, "__init__", _mesh_init)
    _install_reductions()


def _get_backend(original: Callable[..., str], group: Any = None) -> str:
    real = original(group)
    return dist.Backend(_asked.get((group or c10d._get_default_group()).group_name, real))


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _mapped(original: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str | None, Any]:
    """Return the requested backend, and the arguments as gloo takes them."""
    bound = _signature(original).bind(*args, **kwargs)
    given = bound.arguments
    backend = given.get("backend")
    backend = None if backend is None else str(backend).lower()
    if backend is not None:
        given["backend"] = cpu_backend(backend)
        if given["backend"] != backend:
            given.pop("pg_options", None)
            given.pop("backend_options", None)
    device = given.pop("device_id", None)
    if device is not None and (type(device) is int or device.type == "cuda"):
        MACHINE.bound = cuda_index(device)
    return backend, bound


def _init_process_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    backend, bound = _mapped(original, args, kwargs)
    if backend is None:  # a build for CUDA would take NCCL
        bound.arguments["backend"] = BACKENDS["nccl"]
    original(*bound.args, **bound.kwargs)
    group = c10d._get_default_group()
    _remember(group, backend)
    if backend is not None and "nccl" in backend and "cpu:gloo" in backend:
        _background[group.group_name] = _new_group(backend="gloo")


def _async_save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    bound = _signature(original).bind(*args, **kwargs)
    if bound.arguments.get("process_group") is None and dist.is_initialized():
        name = c10d._get_default_group().group_name
        bound.arguments["process_group"] = _background.get(name)
    return original(*bound.args, **bound.kwargs)


def _rendezvous(original: Callable[..., Iterator[Any]], *args: Any, **kwargs: Any) -> Iterator[Any]:
    """Give each default group its own keys in the store.

    Gloo's ranks find each other through keys that torch names alike after
    ``destroy_process_group``; a rank that is early would read where its peer was before, and wait
    there forever.
    """
    for store, rank, world_size in original(*args, **kwargs):
        yield c10d.PrefixStore(f"round {next(_rounds)}", store), rank, world_size


def _new_group_with_tag(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    backend, bound = _mapped(original, args, kwargs)
    group = original(*bound.args, **bound.kwargs)
    if isinstance(group, Group):
        _remember(group, backend or _asked.get(c10d._get_default_group().group_name))
    return group


def _remember(group: Any, backend: str | None) -> None:
    _kept.append(group)
    if backend is None:
        _asked.pop(group.group_name, None)
        return
    if "nccl" in backend:
        MACHINE.used = True
    _asked[group.group_name] = backend


def _init_device_mesh(
    original: Callable[..., Any], device_type: str, *args: Any, **kwargs: Any
) -> Any:
    kwargs.pop("backend_override", None)
    return original(_mesh_type(device_type), *args, **kwargs)


def _mesh_init(
    original: Callable[..., None], self: Any, device_type: str, *args: Any, **kwargs: Any
) -> None:
    original(self, _mesh_type(device_type), *args, **kwargs)


def _mesh_type(device_type: str) -> str:
    """Return the type; a mesh on CUDA chooses the local rank's device, if none is chosen."""
    if device_type == "cuda" and MACHINE.chosen is None:
        choose(MACHINE.local_rank)
    return cpu_type(device_type)


def _install_reductions() -> None:
    for name, inputs in _REDUCTIONS.items():
        wrap(Group, name, functools.partial(_reduce, inputs=inputs))
    for name in _IN_ONE_PIECE:
        wrap(Group, name, _in_one_piece)
    for name in ("all_reduce", "reduce_scatter_tensor", "reduce_scatter_single"):
        wrap(functional, name, _reduce_functionally)
        wrap(functional, f"{name}_autograd", _reduce_functionally)


def _reduce(
    original: Callable[..., Any],
    group: Any,
    *args: Any,
    inputs: tuple[int, bool],
    **kwargs: Any,
) -> Any:
    """Reduce through gloo, which knows neither averages nor factors."""
    options = kwargs.get("opts") or (args[-1] if args else None)
    op = getattr(options, "reduceOp", None)
    factor = _factor(op, group.size()) if op is not None else None
    if options is None or factor is None:
        return original(group, *args, **kwargs)
    index, in_place = inputs
    arguments = list(args)
    whole = not _first(arguments[index]).dtype.is_floating_point
    if not whole:
        arguments[index] = _scaled(arguments[index], factor, in_place)
    options.reduceOp = ReduceOp.SUM
    try:
        work = original(group, *arguments, **kwargs)
    finally:
        options.reduceOp = op
    if whole:
        work.wait()
        _divide(arguments[0], group.size())
    return work


def _in_one_piece(
    original: Callable[..., Any], group: Any, output: Any, given: Any, *args: Any, **kwargs: Any
) -> Any:
    """Flatten tensors whose shapes gloo would reject and NCCL accepts."""
    output, given = output.detach(), given.detach()
    larger, smaller = sorted((output, given), key=lambda tensor: -tensor.numel())
    rows = smaller.shape[0] * group.size() if smaller.dim() else 0
    if (rows, *smaller.shape[1:]) != tuple(larger.shape):
        output, given = output.view(-1), given.reshape(-1)
    return original(group, output, given, *args, **kwargs)


def _factor(op: Any, size: int) -> float | None:
    """Return what NCCL multiplies each rank's part by before it adds them up."""
    if op == ReduceOp.AVG:
        return 1 / size
    if op == ReduceOp.PREMUL_SUM:
        return float(op.__getstate__()[1])
    return None


def _first(tensors: Any) -> Any:
    return _first(tensors[0]) if isinstance(tensors, Sequence) else tensors


def _divide(tensors: Any, size: int) -> None:
    """Average whole numbers, which NCCL divides when they are added up."""
    for tensor in tensors if isinstance(tensors, Sequence) else [tensors]:
        tensor.div_(size, rounding_mode="trunc")


def _scaled(tensors: Any, factor: float, in_place: bool) -> Any:
    if isinstance(tensors, Sequence):
        return [_scaled(tensor, factor, in_place) for tensor in tensors]
    with torch.no_grad():
        return tensors.mul_(factor) if in_place else tensors * factor


def _reduce_functionally(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    op = kwargs["reduceOp"] if "reduceOp" in kwargs else args[1]
    if op.lower() != "avg":
        return original(*args, **kwargs)
    bound = _signature(original).bind(*args, **kwargs)
    given = bound.arguments
    name = functional._resolve_group_name(given["group"])
    given["self"] = given["self"] / torch._C._distributed_c10d._resolve_process_group(name).size()
    given["reduceOp"] = "sum"
    return original(*bound.args, **bound.kwargs)
