"""The program that `Warm` talks to: loads torch once, then forks the ranks of each order.

It stays single-threaded and never runs a script itself, so that nothing one verification does can
reach the next. Orders come one JSON line each; the end of its input ends it and all its ranks.
It is started by path, so its own folder leads `sys.path`: that entry goes before all imports.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]

import gc
import json
import os
import resource
import select
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

from fsdplint.verify import deaths
from fsdplint.verify.forks import (
    fork,
    has_ended,
    launcher_environment,
    reap,
    reserved_port,
)
from fsdplint.verify.rank import observer, patch  # noqa: F401  -- the first for what it loads
from fsdplint.verify.rank.life import live
from fsdplint.verify.warm import OVER, Order

_INTERVAL = 0.01


class _Job:
    """The ranks of one order, by process id."""

    def __init__(self, order: Order) -> None:
        self.folder = order.folder
        self._port = ExitStack()
        port = self._port.enter_context(reserved_port())
        self._running = {
            fork(partial(_become, order, rank, port)): rank for rank in range(order.ranks)
        }

    def over(self) -> bool:
        """Reaps the ranks that have ended; once all have, marks the order's folder."""
        for pid in [pid for pid in self._running if has_ended(pid)]:
            deaths.note(Path(self.folder), self._running.pop(pid), reap(pid))
        if not self._running:
            self._port.close()
            if Path(self.folder).exists():
                (Path(self.folder) / OVER).touch()
        return not self._running

    def kill(self) -> None:
        """Ends every rank that is left."""
        for pid in self._running:
            reap(pid)
        self._running = {}


def _become(order: Order, rank: int, port: int) -> NoReturn:
    began = time.perf_counter()
    os.environ.clear()
    tempfile.tempdir = None  # it is remembered from the old environment
    os.environ.update(order.environment | launcher_environment(rank, order.ranks, port))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # else all ranks would draw the same numbers
    live(began)


def _serve() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    patch.prepare()
    gc.collect()
    gc.freeze()
    jobs: list[_Job] = []
    try:
        for line in _lines(jobs):
            order = Order(**json.loads(line))
            if order.ranks:
                jobs.append(_Job(order))
            for job in jobs:
                if not order.ranks and job.folder == order.folder:
                    job.kill()
    finally:
        for job in jobs:
            job.kill()


def _lines(jobs: list[_Job]) -> Iterator[bytes]:
    """Yields each line of the input; looks after `jobs` meanwhile."""
    text = b""
    while True:
        while b"\n" in text:
            line, _, text = text.partition(b"\n")
            yield line
        if select.select([0], [], [], _INTERVAL if jobs else None)[0]:
            piece = os.read(0, 1 << 16)
            if not piece:
                return
            text += piece
        jobs[:] = [job for job in jobs if not job.over()]


if __name__ == "__main__":
    _serve()
    os._exit(0)  # as for ranks: nothing is left to do, and shutdown is where torch may complain
