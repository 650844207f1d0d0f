"""FSDP and DTensor on CPU where they insist on an accelerator; random numbers of shards.

HYBRID_SHARD shards over the devices of a node, whose number it asks of the device that computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.distributed.fsdp import _init_utils as fsdp1
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.fsdp._fully_shard import _fsdp_init as fsdp2
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import _random as tracking
from torch.distributed.tensor.experimental import register_sharding

from fsdplint.verify.rank.patch import replace, wrap
from fsdplint.verify.rank.shim import random, streams
from fsdplint.verify.rank.shim.devices import CPU, MACHINE, choose, cpu_device


def install() -> None:
    """Let FSDP1 compute on CPU, attention run on sharded heads, and shards be filled as on CUDA."""
    wrap(fsdp1, "_init_device_handle", _init_device_handle)
    wrap(fsdp1, "_get_device_from_device_id", _get_device_from_device_id)
    # On CPU every parameter looks as if it had not been moved to its device yet.
    replace(fsdp1, "_check_module_states_for_sync_module_states", lambda module_states: None)
    counted = torch.cpu.device_count
    replace(torch.cpu, "device_count", lambda: MACHINE.count if MACHINE.used else counted())
    for name in ("_init_default_mesh", "_init_default_fully_shard_mesh"):
        wrap(fsdp2, name, _default_mesh)
    wrap(collectives, "foreach_all_gather_copy_out", _copy_out)
    _complete_cpu_streams()
    _register_attention()
    replace(tracking, "is_rng_supported_mesh", lambda mesh: True)
    replace(tracking, "OffsetBasedRNGTracker", ShardTracker)


def _init_device_handle(
    original: Callable[..., Any], state: Any, module: Any, ignored_params: Any, device_id: Any
) -> Any:
    cpu_device(device_id)
    return original(state, module, ignored_params, CPU)


def _get_device_from_device_id(
    original: Callable[..., Any], device_id: Any, *args: Any, **kwargs: Any
) -> Any:
    return original(cpu_device(device_id), *args, **kwargs)


def _default_mesh(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    mesh = original(*args, **kwargs)
    if MACHINE.chosen is None:
        choose(MACHINE.local_rank)
    return mesh


def _copy_out(
    original: Callable[..., None], gathered: Any, fsdp_params: Any, *args: Any, **kwargs: Any
) -> None:
    """Hide repeated gathering from autograd, which takes it for a write on CPU in torch 2.6."""
    with contextlib.ExitStack() as versions:
        for parameter in fsdp_params:
            for output in parameter.all_gather_outputs:
                if not output.is_inference():
                    versions.enter_context(_unsafe_preserve_version_counter(output))
        original(gathered, fsdp_params, *args, **kwargs)


def _complete_cpu_streams() -> None:
    """Add what FSDP needs to the streams of `torch.cpu`, which lack methods, most before 2.7."""
    for name, ours in (("Stream", streams.Stream), ("Event", streams.Event)):
        theirs = getattr(torch.cpu, name, None)
        if theirs is None:
            setattr(torch.cpu, name, ours)
            continue
        for method in ("synchronize", "query", "record_event", "wait_event", "elapsed_time"):
            if not hasattr(theirs, method) and hasattr(ours, method):
                setattr(theirs, method, getattr(ours, method))


def _register_attention() -> None:
    """Give the CPU's fused attention the shardings of CUDA's: none, by batch, by head."""
    aten = torch.ops.aten
    placements = (Replicate(), Shard(0), Shard(1))

    def forward(q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> list[Any]:
        others = [None] * len(rest)
        return [([p, p], [p, p, p, *others]) for p in placements]

    def backward(
        grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any, **options: Any
    ) -> list[Any]:
        others = [None] * len(rest)
        return [([p, p, p], [p, p, p, p, p, p, *others]) for p in placements]

    register: Any = register_sharding  # untyped in PyTorch
    register(aten._scaled_dot_product_flash_attention_for_cpu.default)(forward)
    register(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(backward)


class ShardTracker:
    """`OffsetBasedRNGTracker` for shards on CPU: equal values on replicas, others on each shard.

    On a mesh of CPUs, PyTorch lets every rank draw from its own generator, so that equally seeded
    ranks fill all shards alike, and differently seeded ones make replicas differ. Here, each
    operation draws one seed, the same on all ranks, and each shard adds its index.

    Like PyTorch's class, take rank 0's state of the device's generator when it is made.
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
    """Return which shard of the tensor this rank holds; it is the same on all replicas."""
    index = 0
    for dim, placement in enumerate(spec.placements):
        if not (placement.is_replicate() or placement.is_partial()):
            index = index * spec.mesh.size(dim) + spec.mesh.get_coordinate()[dim]
    return index
