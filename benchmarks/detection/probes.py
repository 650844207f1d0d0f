"""What torch itself says about a running program: probes that a rank installs before it starts."""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

UNITS = (FSDPModule, FullyShardedDataParallel)


@dataclass(slots=True)
class Observed:
    """What happened on one rank.

    Attributes:
        error: the exception that ended it, as `Type: message`; "" if none did.
        stale: an optimizer stepped over parameters that are not the model's own any more.
        saved: the files that got a slice of a sharded tensor.
        units: how many FSDP units each root has at the first step.
    """

    error: str = ""
    stale: bool = False
    saved: list[str] = field(default_factory=list)
    units: list[int] = field(default_factory=list)

    def write(self) -> None:
        rank = os.environ.get("RANK") or str(torch.distributed.get_rank())
        Path(f"observed-{rank}.json").write_text(json.dumps(asdict(self)))


def install(observed: Observed) -> None:
    _watch_steps(observed)
    _watch_writes(observed)
    vars(mp)["spawn"] = _forked(observed)


def _watch_steps(observed: Observed) -> None:
    def before_step(optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        kinds = {isinstance(p, DTensor) for p in params}
        if len(kinds) == 2 or all(p.grad is None for p in params):
            observed.stale = True
        observed.units = observed.units or _root_sizes()

    register_optimizer_step_pre_hook(before_step)


def _root_sizes() -> list[int]:
    """How many units each root among the living modules has, itself included."""
    units = [one for one in gc.get_objects() if issubclass(type(one), UNITS)]
    below = {id(child) for unit in units for child in unit.modules() if child is not unit}
    roots = [unit for unit in units if id(unit) not in below]
    return [sum(isinstance(child, UNITS) for child in root.modules()) for root in roots]


def _watch_writes(observed: Observed) -> None:
    def watched(write: Callable[..., Any]) -> Callable[..., Any]:
        def watching(obj: object, target: object, *args: object, **kwargs: object) -> Any:
            if _sliced(obj):
                observed.saved.append(str(getattr(target, "name", target)))
            return write(obj, target, *args, **kwargs)

        return watching

    torch.save = watched(torch.save)
    pickle.dump = watched(pickle.dump)
    safetensors = types.ModuleType("safetensors")
    safetensors.torch = types.ModuleType("safetensors.torch")  # type: ignore[attr-defined]  # a stand-in
    safetensors.torch.save_file = watched(lambda *_: None)
    sys.modules["safetensors"] = safetensors
    sys.modules["safetensors.torch"] = safetensors.torch


def _sliced(obj: object) -> bool:
    """Whether ``obj`` holds a tensor of which other ranks have the rest."""
    if isinstance(obj, DTensor):
        return any(not placement.is_replicate() for placement in obj.placements)
    if isinstance(obj, dict):
        return any(map(_sliced, obj.values()))
    if isinstance(obj, (list, tuple)):
        return any(map(_sliced, obj))
    return False


def _forked(observed: Observed) -> Callable[..., None]:
    """`mp.spawn` whose ranks keep the probes."""

    def spawn(function: Callable[..., None], args: tuple[Any, ...], nprocs: int) -> None:
        def started(rank: int, *rest: Any) -> None:
            os.environ["RANK"] = str(rank)
            try:
                function(rank, *rest)
            except BaseException as error:
                observed.error = f"{type(error).__name__}: {error}"
                raise
            finally:
                observed.write()

        start = vars(mp)["start_processes"]  # untyped
        start(started, args=args, nprocs=nprocs, start_method="fork")

    return spawn
