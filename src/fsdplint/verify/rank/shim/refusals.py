"""What of CUDA has no counterpart on CPU: it says so when it is used."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any, NoReturn

import torch
from torch.utils import cpp_extension

from fsdplint.verify.rank.shim.devices import Unmappable
from fsdplint.verify.rank.shim.patching import replace

_REASONS = {
    "CUDAGraph": "CUDA graphs record GPU kernels",
    "graph": "CUDA graphs record GPU kernels",
    "make_graphed_callables": "CUDA graphs record GPU kernels",
    "graph_pool_handle": "CUDA graphs record GPU kernels",
    "CUDAPluggableAllocator": "an allocator of GPU memory cannot run without a GPU",
    "MemPool": "an allocator of GPU memory cannot run without a GPU",
    "use_mem_pool": "an allocator of GPU memory cannot run without a GPU",
    "change_current_allocator": "an allocator of GPU memory cannot run without a GPU",
    "caching_allocator_alloc": "it returns a pointer into a GPU's memory",
    "caching_allocator_delete": "it takes a pointer into a GPU's memory",
    "cudart": "it calls the CUDA runtime",
    "current_blas_handle": "it returns a handle of cuBLAS",
    "GreenContext": "it partitions a GPU",
}


def install() -> None:
    """Refuse the rest of `torch.cuda`, raw NCCL, and kernels that are compiled for CUDA."""
    for name, reason in _REASONS.items():
        if hasattr(torch.cuda, name):
            _refuse(torch.cuda, name, reason)
    for name, value in list(vars(torch.cuda.nccl).items()):
        if isinstance(value, FunctionType) and not name.startswith("_"):
            _refuse(torch.cuda.nccl, name, "it drives several GPUs from one process")
    replace(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    replace(torch.cuda.nccl, "is_available", lambda tensors: True)
    for name in ("load", "load_inline", "CUDAExtension"):
        _refuse_kernels(cpp_extension, name)
    _refuse(torch.cuda, "_lazy_init", "an operation of CUDA was reached that is not mapped")


def _refuse(owner: ModuleType, name: str, reason: str) -> None:
    label = f"{owner.__name__}.{name}"

    class Refused:
        """Stands where a function or a class was."""

        def __init__(self, *_: Any, **__: Any) -> None:
            _raise(f"{label} does not run on CPU: {reason}")

    Refused.__name__ = Refused.__qualname__ = name
    replace(owner, name, Refused)


def _raise(message: str) -> NoReturn:
    raise Unmappable(message)


def _refuse_kernels(owner: ModuleType, name: str) -> None:
    original = getattr(owner, name)

    def build(*args: Any, **kwargs: Any) -> Any:
        if _mentions_cuda(args, kwargs):
            _raise(f"{name} compiles kernels for CUDA, which do not run on CPU")
        return original(*args, **kwargs)

    replace(owner, name, build)


def _mentions_cuda(args: Any, kwargs: Any) -> bool:
    sources = [*args, kwargs.get("sources", ())]
    names = " ".join(str(source) for source in sources)
    return bool(kwargs.get("cuda_sources") or kwargs.get("with_cuda") or ".cu" in names)
