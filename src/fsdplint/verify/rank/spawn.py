"""Scripts that start their own ranks: verify's ranks exist already, so each one runs its part.

`torch.multiprocessing.spawn(fn, args, nprocs)` becomes ``fn(local_rank, *args)`` in every rank, and
the addresses such scripts fix give way to the launcher's, so that two verifications never meet.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.multiprocessing.spawn import spawn as spawn_processes

from fsdplint.verify.rank.patch import replace_everywhere
from fsdplint.verify.rank.shim import Unmappable

_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

_RENDEZVOUS = ("init_method", "store", "rank", "world_size")


def install(local_rank: int, local_world_size: int) -> None:
    """Replaces ``spawn`` and keeps the launcher's rendezvous."""
    replace_everywhere(spawn_processes, _in_place(local_rank, local_world_size))
    replace_everywhere(dist.init_process_group, _joined(dist.init_process_group))


def _in_place(local_rank: int, local_world_size: int) -> Callable[..., None]:
    @functools.wraps(spawn_processes)
    def spawn(fn: Callable[..., None], args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        if nprocs != local_world_size:
            raise Unmappable(
                f"the script spawns {nprocs} ranks and verify has started {local_world_size}: "
                f"pass --nproc {nprocs}"
            )
        fn(local_rank, *args)

    return spawn


def _joined(original: Callable[..., None]) -> Callable[..., None]:
    """The rank's process group, always through the launcher's own store."""
    launcher = {name: os.environ[name] for name in _LAUNCHER if name in os.environ}
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        os.environ.update(launcher)
        given = signature.bind(*args, **kwargs).arguments
        kept = {name: value for name, value in given.items() if name not in _RENDEZVOUS}
        original(**kept)

    return init_process_group
