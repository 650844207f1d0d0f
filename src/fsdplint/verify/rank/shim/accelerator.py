"""`torch.accelerator` as a script sees it: every public name here replaces the one there."""

from __future__ import annotations

from typing import Any

import torch

from fsdplint.verify.rank.shim import cuda
from fsdplint.verify.rank.shim.devices import DEVICE, cuda_index


class device_index(cuda.device):  # noqa: N801  -- PyTorch's spelling
    """`with torch.accelerator.device_index(1)`."""


def is_available() -> bool:
    return cuda.is_available()


def device_count() -> int:
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> torch.device:
    return DEVICE("cuda")


def current_device_index() -> int:
    return cuda.current_device()


def current_device_idx() -> int:
    return cuda.current_device()


def set_device_index(device: Any, /) -> None:
    cuda.set_device(device)


def set_device_idx(device: Any, /) -> None:
    cuda.set_device(device)


def synchronize(device: Any = None, /) -> None:
    cuda_index(device)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    cuda_index(device)
    return {"supported_dtypes": {torch.float32, torch.float16, torch.bfloat16, torch.float64}}
