"""Profilers: the CPU's part of a profile is measured, CUDA's ranges and snapshots are empty."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler

from fsdplint.verify.rank.shim.patching import replace, wrap


def install() -> None:
    """Let scripts that profile CUDA run."""
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
