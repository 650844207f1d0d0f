"""`torch.cuda` as a script sees it: each function and class here replaces one of `torch.cuda`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from fsdplint.verify.rank.shim import memory, random
from fsdplint.verify.rank.shim.devices import MACHINE, choose, cuda_index
from fsdplint.verify.rank.shim.patching import replace, wrap

# An A100's, which is the oldest that does everything FSDP scripts ask for.
_NAME = "NVIDIA A100-SXM4-80GB (on CPU, by fsdplint)"
_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class _Properties:
    """What `get_device_properties` tells."""

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
    """Give what is asked beside `torch.cuda` the answers of a build for CUDA."""
    replace(torch.cuda, "default_generators", tuple(random.default_generators))
    torch.version.cuda = torch.version.cuda or "12.8"
    replace(torch.backends.cuda, "is_built", lambda: True)
    replace(torch.backends.cudnn, "is_available", lambda: True)
    replace(torch.backends.cudnn, "version", lambda: 91002)
    wrap(torch, "get_device_module", _get_device_module)


def _get_device_module(original: Callable[..., ModuleType], device: Any = None) -> ModuleType:
    return original("cuda" if device is None else device)


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
    """A build for CUDA takes every fork after a question about devices for one: it then leaves
    `torch.manual_seed` without effect on CUDA's generators."""
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


def is_tf32_supported() -> bool:
    return True


def is_current_stream_capturing() -> bool:
    return False


def utilization(device: Any = None) -> int:
    return 0


def memory_usage(device: Any = None) -> int:
    return 0


def temperature(device: Any = None) -> int:
    return 0


def power_draw(device: Any = None) -> int:
    return 0


def clock_rate(device: Any = None) -> int:
    return 0


_sync_debug_mode = 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    global _sync_debug_mode
    modes = {"default": 0, "warn": 1, "error": 2}
    _sync_debug_mode = modes[debug_mode] if isinstance(debug_mode, str) else debug_mode


def get_sync_debug_mode() -> int:
    return _sync_debug_mode
