"""The rest of a training step: mixed precision, attention kernels, wrappers, profilers."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.amp.autocast_mode as autocast_mode
from torch import nn
from torch.autograd import profiler

from fsdplint.verify.rank.patch import replace, wrap
from fsdplint.verify.rank.shim.devices import MACHINE, Unmappable, cpu_type, cuda_index

_FLOAT32 = ("layer_norm", "group_norm")
"""Operators that autocast runs in float32 on CUDA and leaves alone on the CPU, though there they
refuse weights of another type (torch 2.6-2.15, ``aten/src/ATen/autocast_mode.h``)."""
_libraries: list[Any] = []


def install() -> None:
    """Map autocast, gradient scaling, attention kernels, DDP, `torch.compile` and profilers."""
    _install_autocast()
    wrap(torch.amp.GradScaler, "__init__", _scaler_init)
    # A script that allows only kernels that CUDA has would leave none for the CPU.
    replace(torch._C, "_set_sdp_use_math", lambda enabled: None)
    wrap(nn.parallel.DistributedDataParallel, "__init__", _ddp_init)
    wrap(nn.DataParallel, "__init__", _data_parallel_init)
    wrap(torch, "compile", _compile)
    # A scripted function would see the functions that replace PyTorch's.
    torch.jit._state.disable()
    _install_profilers()


def _install_autocast() -> None:
    wrap(torch.autocast, "__init__", _autocast_init)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "is_autocast_available"):
        wrap(torch, name, _of_type)
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        wrap(torch, name, _set_of_type)
    replace(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cpu"))
    replace(torch, "set_autocast_gpu_dtype", lambda d: torch.set_autocast_dtype("cpu", d))
    _install_float32()
    wrap(
        autocast_mode, "_cast", lambda original, v, kind, dtype: original(v, cpu_type(kind), dtype)
    )


def _install_float32() -> None:
    """Let autocast run in float32 what it runs so on CUDA, where weights may have another type."""
    excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(operator: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(excluded):
                return operator(*map(_float32, args), **kwargs)

        return run

    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch's
    _libraries.append(library)  # its kernels go with it
    for name in _FLOAT32:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
            instead = kernel(getattr(torch.ops.aten, name))
            library.impl(name, instead, "AutocastCPU")  # type: ignore[no-untyped-call]  # torch's


def _float32(value: Any) -> Any:
    low = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if low else value


def _autocast_init(
    original: Callable[..., None],
    self: Any,
    device_type: str,
    dtype: Any = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    if device_type == "cuda" and dtype is None:
        dtype = torch.float16
    original(self, cpu_type(device_type), dtype, enabled, cache_enabled)


def _of_type(original: Callable[..., Any], device_type: str = "cuda") -> Any:
    return original(cpu_type(device_type))


def _set_of_type(original: Callable[..., Any], *args: Any) -> Any:
    if isinstance(args[0], str):
        return original(cpu_type(args[0]), *args[1:])
    return original("cpu", *args)


def _scaler_init(
    original: Callable[..., None], self: Any, device: str = "cuda", *args: Any, **kwargs: Any
) -> None:
    original(self, cpu_type(device), *args, **kwargs)


def _ddp_init(
    original: Callable[..., None],
    self: Any,
    module: Any,
    device_ids: Any = None,
    output_device: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    for device in [*(device_ids or ()), output_device]:
        cuda_index(device)
    original(self, module, None, None, *args, **kwargs)


def _data_parallel_init(
    original: Callable[..., None],
    self: Any,
    module: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
) -> None:
    """Make a DataParallel of one device; several cannot be mapped."""
    devices = device_ids if device_ids is not None else range(MACHINE.count)
    if len(devices) > 1:
        raise Unmappable("torch.nn.DataParallel drives several GPUs from one process")
    nn.Module.__init__(self)
    self.dim, self.module, self.device_ids = dim, module, []


def _compile(original: Callable[..., Any], model: Any = None, **options: Any) -> Any:
    """Run eagerly; a module still gets its wrapper, whose parameters' names say `_orig_mod`."""
    if model is None:
        return functools.partial(_compile, original, **options)
    if not isinstance(model, nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    # It only calls what should be a context of the compiler's.
    return OptimizedModule(model, lambda function: function)  # type: ignore[arg-type]


def _install_profilers() -> None:
    """Measure the CPU's part of a profile; leave CUDA's ranges and snapshots empty."""
    wrap(profiler.profile, "__init__", _profile_init)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        replace(torch.cuda.nvtx, name, _nothing)
    replace(torch.cuda.nvtx, "range", _range)
    for name in ("start", "stop"):
        replace(torch.cuda.profiler, name, _nothing)
    replace(torch.cuda.profiler, "profile", _range)
    replace(torch.cuda.memory, "_record_memory_history", _nothing)
    replace(torch.cuda.memory, "_snapshot", _snapshot)
    replace(torch.cuda.memory, "_dump_snapshot", _dump_snapshot)


def _profile_init(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    kwargs.pop("use_cuda", None)
    if kwargs.get("use_device") == "cuda":
        kwargs["use_device"] = None
    original(self, *args, **kwargs)


def _nothing(*_: Any, **__: Any) -> int:
    return 0


@contextlib.contextmanager
def _range(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _snapshot(*_: Any, **__: Any) -> dict[str, list[Any]]:
    return {"segments": [], "device_traces": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", *_: Any, **__: Any) -> None:
    Path(filename).write_bytes(pickle.dumps(_snapshot()))
