"""How scripts start their ranks: verify's ranks exist already, so each one runs its part.

`torch.multiprocessing.spawn(fn, args, nprocs)` becomes ``fn(local_rank, *args)`` in every rank, and
the launcher's addresses replace those that such scripts set, so that two verifications never meet.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from fsdplint.verify.events import GroupMade
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.shim import Unmappable

_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_RENDEZVOUS = ("init_method", "store", "rank", "world_size")


def install(local_rank: int, local_world_size: int) -> None:
    """Replace ``spawn``, and always join the process group through the launcher's own store."""
    launcher = {name: os.environ[name] for name in _LAUNCHER if name in os.environ}
    signature = inspect.signature(dist.init_process_group)

    def spawn(
        _: Any, fn: Callable[..., None], args: Any = (), nprocs: int = 1, *__: Any, **___: Any
    ) -> None:
        if nprocs != local_world_size:
            raise Unmappable(
                f"the script spawns {nprocs} ranks and verify has started {local_world_size}: "
                f"pass --nproc {nprocs}"
            )
        fn(local_rank, *args)

    def init_process_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        os.environ.update(launcher)
        given = signature.bind(*args, **kwargs).arguments
        original(**{name: value for name, value in given.items() if name not in _RENDEZVOUS})

    wrap(torch.multiprocessing, "spawn", spawn)
    wrap(dist, "init_process_group", init_process_group)


def note_group(seen: Seen) -> None:
    """Note the process group that the script asks for, whatever the launcher enforces."""
    signature = inspect.signature(dist.init_process_group)
    note = seen.recorder.probe("group")(_note)

    def init_process_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        note(seen, signature.bind(*args, **kwargs).arguments)

    wrap(dist, "init_process_group", init_process_group)


def _note(seen: Seen, asked: dict[str, Any]) -> None:
    rank, size = asked.get("rank", -1), asked.get("world_size", -1)
    seen.write(
        GroupMade(
            _backend(),
            rank if rank not in (-1, None) else int(os.environ["RANK"]),
            size if size not in (-1, None) else int(os.environ["WORLD_SIZE"]),
            seen.place(),
        )
    )


def _backend() -> str:
    """Return e.g. ``nccl``; for a group with several backends, e.g. ``gloo/nccl``."""
    name = dist.get_backend()
    if name != "undefined":
        return name
    pairs = str(dist.get_backend_config()).split(",")
    return "/".join(sorted({pair.rpartition(":")[2] for pair in pairs}))
