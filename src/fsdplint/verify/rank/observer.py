"""The observer: loads torch, installs the shim where there is no CUDA, then the probes."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # before anything is patched: it keeps copies
import torch.distributed
import torch.distributed.checkpoint
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.distributed.tensor.parallel
import torch.utils.checkpoint
import torch.utils.data

from fsdplint.verify.events import Device, Memory, Started
from fsdplint.verify.rank import shim, shrink, spawn
from fsdplint.verify.rank.equivalence.record import Record
from fsdplint.verify.rank.lines import Lines
from fsdplint.verify.rank.probes import (
    collectives,
    forwards,
    fsdp1,
    loaders,
    means,
    nans,
    numbers,
    options,
    replacements,
    saves,
    sharding,
    shards,
    steps,
    storage,
)
from fsdplint.verify.rank.probes.async_saves import AsyncSaves
from fsdplint.verify.rank.recorder import Recorder
from fsdplint.verify.rank.reference import alone, capture, replay
from fsdplint.verify.rank.reference.tape import Tapes
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.compare import Comparison
from fsdplint.verify.rank.resume.keep import Keeper
from fsdplint.verify.rank.snapshot import Snapshots

Finished = steps.Finished
_KIB = 1024
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Observer:
    """All that watches one rank.

    Args:
        began: `time.perf_counter` when the process had just begun.
    """

    def __init__(self, recorder: Recorder, began: float) -> None:
        self._recorder, self._began = recorder, began
        self._seen = Seen(recorder)
        self._snapshots = Snapshots(self._seen)
        request = recorder.request
        self._keeper = Keeper(self._seen) if request.keep else None
        self._resuming: list[Keeper | Comparison] = [self._keeper] if self._keeper else []
        if request.resumed:
            self._resuming.append(Comparison(self._seen))
        self._record = Record(self._seen) if request.record else None
        self._async_saves = AsyncSaves(self._seen)
        self._lines = Lines(recorder, request.watched)
        self._local_rank = int(os.environ["LOCAL_RANK"])
        self._local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
        self._cuda = False
        self._before = 0
        self._visible = os.environ.get(_VISIBLE)

    @property
    def steps(self) -> int:
        """Optimizer steps done."""
        return self._seen.steps

    def start(self) -> None:
        """Install what watches the script, before its first line."""
        self._cuda = _uses_cuda(self._recorder.request.device, self._local_world_size)
        devices = self._devices()
        if not self._cuda:
            shim.install(self._local_rank, devices)
        spawn.install(self._local_rank, devices)
        if self._recorder.request.shrink:
            shrink.install(self._seen)
        if self._recorder.request.replay:
            self._watch_calls()
            replay.install(self._seen, alone.install())
        else:
            self._watch()
        self._before = _peak()
        self._recorder.write(self._started())
        self._lines.install()

    def _devices(self) -> int:
        """Return how many devices the script finds: for a replay, as many as there were."""
        taped = self._recorder.request.replay
        return len(Tapes(Path(taped)).ranks) if taped else self._local_world_size

    def _watch_calls(self) -> None:
        sharding.install(self._seen)
        forwards.install(self._seen)

    def _watch(self) -> None:
        spawn.note_group(self._seen)
        spawn.note_processes(self._seen)
        options.install(self._seen)
        collectives.install(self._seen)
        storage.install(self._seen)
        replacements.install(self._seen)
        nans.install(self._seen)
        loaders.install(self._seen)
        means.install(self._seen)
        self._watch_calls()
        if self._recorder.request.capture:
            capture.install(self._seen)
        for one in self._resuming:
            one.install()
        if self._record is not None:
            self._record.install()
        steps.install(self._seen, self._snapshots, self._keeper)
        fsdp1.install(self._seen)
        numbers.install(self._seen)
        shards.install(self._seen)
        saves.install(self._seen, self._keeper, self._record)
        self._async_saves.install()

    def _started(self) -> Started:
        return Started(
            self._recorder.rank,
            self._local_rank,
            int(os.environ["WORLD_SIZE"]),
            self._local_world_size,
            os.getpid(),
            torch.__version__,
            "cuda" if self._cuda else "cpu",
            not self._cuda,
            time.perf_counter() - self._began,
        )

    def finish(self) -> None:
        """Write what is only known at the end."""
        self._lines.finish()
        self._recorder.probe("snapshot")(self._snapshots.take_last)()
        self._recorder.probe("async-saves")(self._async_saves.finish)()
        for one in self._resuming:
            self._recorder.probe("resume")(one.finish)()
        if self._record is not None:
            self._recorder.probe("record")(self._record.finish)()
        self._recorder.probe("group")(self._note_device)()
        self._recorder.probe("memory")(self._note_memory)()

    def _note_device(self) -> None:
        """Note where the rank works; CUDA may not be usable any more, or never have been."""
        if self._cuda:
            index: int | None = _physical(torch.cuda.current_device())
        else:
            index = shim.logical_device()
            # The shim's devices are all of them, unless the script itself hides some.
            if os.environ.get(_VISIBLE) != self._visible:
                index = _physical(index)
        self._recorder.write(Device(index))

    def _note_memory(self) -> None:
        cuda = torch.cuda.max_memory_allocated() if self._cuda else 0
        self._recorder.write(Memory(_peak(), self._before, cuda))


def _uses_cuda(wanted: str, ranks: int) -> bool:
    """True if this node's ranks run on CUDA; by themselves only if each finds a device."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise shim.Unmappable("--device cuda needs a CUDA device, and torch finds none here")
    enough = torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    return wanted == "cuda" or (wanted == "auto" and enough)


def _physical(index: int | None) -> int | None:
    """Return a device's index among all of the machine's, where ``CUDA_VISIBLE_DEVICES`` lists
    them by number."""
    visible = os.environ.get(_VISIBLE, "").split(",")
    if index is None or index >= len(visible) or not visible[index].strip().isdigit():
        return index
    return int(visible[index])


def _peak() -> int:
    """Return the peak of this process's resident memory in bytes (Linux counts KiB)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
