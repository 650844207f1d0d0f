"""Record how checkpoints end that are saved in the background."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver

from fsdplint.verify.events import AsyncSave, Place
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import called_by_torch
from fsdplint.verify.rank.registry import Seen

_PATIENCE = 5.0
"""Seconds that saves have at the script's end; Python itself waits for their threads there."""


@dataclass(frozen=True)
class _Flight:
    """An asynchronous save that is still running, and the process group it uses."""

    path: str
    place: Place | None
    future: Future[Any]
    group: Any


class AsyncSaves:
    """The asynchronous saves of this rank."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._flights: list[_Flight] = []
        guard = seen.recorder.probe("async-saves")
        self._look, self._add = guard(self._met), guard(self._begun)

    def install(self) -> None:
        """Wrap ``async_save`` and ``destroy_process_group``."""
        wrap(state_dict_saver, "async_save", self.save)
        wrap(dist, "destroy_process_group", self.destroy)

    def save(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a save; record the saves that still run on the same process group."""
        # A save in its own process, or without other ranks, does not use the group.
        kind = getattr(kwargs.get("async_checkpointer_type"), "name", "")
        apart = kind == "PROCESS" or kwargs.get("no_dist", False)
        mine = not called_by_torch() and not apart
        group = kwargs.get("process_group")
        if mine:
            self._look("save", [f for f in self._flights if f.group is group])
        result = original(*args, **kwargs)
        if mine:
            self._add(args, kwargs, group, result)
        return result

    def destroy(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Destroy process groups; record the saves that still run on them."""
        group = kwargs.get("group", args[0] if args else None)
        every = group is None or group is dist.group.WORLD
        self._look("destroy", [f for f in self._flights if every or f.group is group])
        return original(*args, **kwargs)

    def _met(self, by: str, flights: list[_Flight]) -> None:
        for flight in flights:
            if not flight.future.done():
                self._flights.remove(flight)
                self._write(flight, by)

    def _begun(self, args: Any, kwargs: Any, group: Any, result: Any) -> None:
        future = getattr(result, "upload_completion", result)
        if isinstance(future, Future):
            given = kwargs.get("checkpoint_id") or kwargs.get("storage_writer")
            path = getattr(given, "path", given) or next(iter(args[1:]), "")
            self._flights.append(_Flight(str(path), self._seen.place(), future, group))

    def finish(self) -> None:
        """Record how the remaining saves ended."""
        if dist.is_initialized():
            wait_for([flight.future for flight in self._flights], _PATIENCE)
        for flight in self._flights:
            self._write(flight, "")

    def _write(self, flight: _Flight, met: str) -> None:
        error = flight.future.exception() if flight.future.done() else None
        text = f"{type(error).__name__}: {error}" if error else ""
        self._seen.write(
            AsyncSave(
                flight.path, flight.future.done(), met, text, flight.place, self._seen.place()
            )
        )
