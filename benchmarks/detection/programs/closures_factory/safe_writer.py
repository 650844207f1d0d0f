import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def atomic_save(obj: Any, path: str) -> None:
    """Rank 0 writes beside the target and renames, so that no reader sees half a file."""
    if dist.get_rank() != 0:
        return
    target = Path(path)
    temporary = target.with_suffix(".tmp")
    torch.save(obj, temporary)
    os.replace(temporary, target)  # noqa: PTH105
