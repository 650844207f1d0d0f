"""`torch.cuda` and `torch.accelerator` as a script sees them.

Each public function and class here replaces the one of that name in `torch.cuda`. What has no
counterpart on CPU is refused when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension

from fsdplint.verify.rank.patch import replace, wrap
from fsdplint.verify.rank.shim import memory, random
from fsdplint.verify.rank.shim.devices import DEVICE, MACHINE, Unmappable, choose, cuda_index

# An A100's: the oldest device that does everything FSDP scripts ask for.
_NAME = "NVIDIA A100-SXM4-80GB"
_CAPABILITY = (8, 0)
_GRAPHS = "CUDA graphs record GPU kernels"
_ALLOCATORS = "an allocator of GPU memory cannot run without a GPU"
_REFUSED = {
    **dict.fromkeys(("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"), _GRAPHS),
    **dict.fromkeys(("CUDAPluggableAllocator", "MemPool", "use_mem_pool"), _ALLOCATORS),
    "change_current_allocator": _ALLOCATORS,
    "caching_allocator_alloc": "it returns a pointer into GPU memory",
    "caching_allocator_delete": "it takes a pointer into GPU memory",
    "cudart": "it calls the CUDA runtime",
    "current_blas_handle": "it returns a cuBLAS handle",
    "GreenContext": "it partitions a GPU",
    "_lazy_init": "this CUDA operation is not mapped to the CPU",
}


@dataclass(frozen=True)
class _Properties:
    """The result of `get_device_properties`."""

    name: str = _NAME
    major: int = _CAPABILITY[0]
    minor: int = _CAPABILITY[1]
    total_memory: int = memory.TOTAL
    multi_processor_count: int = 108
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 166912
    shared_memory_per_multiprocessor: int = 167936
    L2_cache_size: int = 40 * 2**20
    gcnArchName: str = ""  # noqa: N815  -- PyTorch's spelling
    uuid: str = "00000000-0000-0000-0000-000000000000"


def install() -> None:
    """Make PyTorch answer like a CUDA build outside `torch.cuda`, too; refuse what cannot run."""
    for name, value in _ACCELERATOR.items():
        if hasattr(torch.accelerator, name):
            replace(torch.accelerator, name, value)
    replace(torch.cuda, "default_generators", tuple(random.default_generators))
    torch.version.cuda = torch.version.cuda or "12.8"
    replace(torch.backends.cuda, "is_built", lambda: True)
    replace(torch.backends.cudnn, "is_available", lambda: True)
    replace(torch.backends.cudnn, "version", lambda: 91002)
    wrap(torch, "get_device_module", _get_device_module)
    for name, reason in _REFUSED.items():
        if hasattr(torch.cuda, name):
            _refuse(torch.cuda, name, reason)
    for name, value in list(vars(torch.cuda.nccl).items()):
        if isinstance(value, FunctionType) and not name.startswith("_"):
            _refuse(torch.cuda.nccl, name, "it drives several GPUs from one process")
    replace(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    replace(torch.cuda.nccl, "is_available", lambda tensors: True)
    for name in ("load", "load_inline", "CUDAExtension"):
        wrap(cpp_extension, name, _build)


def _get_device_module(original: Callable[..., ModuleType], device: Any = None) -> ModuleType:
    return original("cuda" if device is None else device)


def _refuse(owner: ModuleType, name: str, reason: str) -> None:
    label = f"{owner.__name__}.{name}"

    class Refused:
        """Raise in the place of a function or a class."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise Unmappable(f"{label} does not run on the CPU: {reason}")

    Refused.__name__ = Refused.__qualname__ = name
    replace(owner, name, Refused)


def _build(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    names = " ".join(map(str, [*args, kwargs.get("sources", ())]))
    if kwargs.get("cuda_sources") or kwargs.get("with_cuda") or ".cu" in names:
        name = original.__name__
        raise Unmappable(f"{name} compiles CUDA kernels, which do not run on the CPU")
    return original(*args, **kwargs)


class device:  # noqa: N801  -- PyTorch's spelling
    """`with torch.cuda.device(1)`; None and negative numbers change nothing."""

    def __init__(self, device: Any) -> None:
        nothing = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if nothing else cuda_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = MACHINE.current
        if self.idx >= 0:
            MACHINE.chosen = self.idx

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            MACHINE.chosen = self.prev_idx


class device_of(device):  # noqa: N801  -- PyTorch's spelling
    """`with torch.cuda.device_of(tensor)`: tensors are on the current device."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


def is_available() -> bool:
    return MACHINE.count > 0


def device_count() -> int:
    return MACHINE.count


def _is_in_bad_fork() -> bool:
    """False: a build for CUDA takes every fork after a question about devices for a bad one, and
    then leaves `torch.manual_seed` without effect on CUDA's generators."""
    return False


def is_initialized() -> bool:
    return MACHINE.used


def init() -> None:
    MACHINE.used = True


def current_device() -> int:
    return cuda_index(None)


def set_device(device: Any) -> None:
    """Choose the current device; a negative number changes nothing, as in PyTorch."""
    if not isinstance(device, int) or device >= 0:
        choose(cuda_index(device))


def synchronize(device: Any = None) -> None:
    cuda_index(device)


def get_device_properties(device: Any = None) -> _Properties:
    cuda_index(device)
    return _Properties()


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    return ["sm_80", "sm_90"]


def get_gencode_flags() -> str:
    return "-gencode compute=compute_80,code=sm_80"


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return cuda_index(device) != cuda_index(peer_device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


is_tf32_supported = is_bf16_supported


def is_current_stream_capturing() -> bool:
    return False


def utilization(device: Any = None) -> int:
    return 0


memory_usage = temperature = power_draw = clock_rate = utilization


_sync_debug_mode = 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    global _sync_debug_mode
    modes = {"default": 0, "warn": 1, "error": 2}
    _sync_debug_mode = modes[debug_mode] if isinstance(debug_mode, str) else debug_mode


def get_sync_debug_mode() -> int:
    return _sync_debug_mode


def _accelerator_capability(device: Any = None, /) -> dict[str, Any]:
    cuda_index(device)
    return {"supported_dtypes": {torch.float32, torch.float16, torch.bfloat16, torch.float64}}


_ACCELERATOR: dict[str, Any] = {
    "current_accelerator": lambda check_available=False: DEVICE("cuda"),
    "current_device_idx": current_device,
    "current_device_index": current_device,
    "device_count": device_count,
    "device_index": device,
    "get_device_capability": _accelerator_capability,
    "is_available": is_available,
    "set_device_idx": set_device,
    "set_device_index": set_device,
    "synchronize": synchronize,
}
