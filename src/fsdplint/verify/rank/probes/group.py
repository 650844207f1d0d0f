"""Notes the process group the script asked for."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

import torch.distributed as dist

from fsdplint.verify.events import GroupMade
from fsdplint.verify.rank.patch import replace_everywhere
from fsdplint.verify.rank.seen import Seen


def install(seen: Seen) -> None:
    """Wraps ``init_process_group`` under all its names."""
    original = dist.init_process_group
    signature = inspect.signature(original)
    note = seen.recorder.probe("group")(_note)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        note(seen, signature.bind(*args, **kwargs).arguments)

    replace_everywhere(original, init_process_group)


def _note(seen: Seen, asked: dict[str, Any]) -> None:
    """The rank and size the script asks for count, not those the launcher enforces."""
    rank, size = asked.get("rank", -1), asked.get("world_size", -1)
    seen.recorder.write(
        GroupMade(
            _backend(),
            rank if rank not in (-1, None) else int(os.environ["RANK"]),
            size if size not in (-1, None) else int(os.environ["WORLD_SIZE"]),
            seen.recorder.place(),
        )
    )


def _backend() -> str:
    """Returns e.g. ``nccl``; of a group with several, e.g. ``gloo/nccl``."""
    name = dist.get_backend()
    if name != "undefined":
        return name
    pairs = str(dist.get_backend_config()).split(",")
    return "/".join(sorted({pair.rpartition(":")[2] for pair in pairs}))
