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
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from fsdplint.verify.processes import (
    adopt_orphans,
    end_descendants,
    follow_lifeline,
    fork,
    has_ended,
    launcher_environment,
    note_death,
    reap,
    reserved_port,
)
from fsdplint.verify.rank import observer, patch  # noqa: F401  -- the first for what it loads
from fsdplint.verify.rank.life import live
from fsdplint.verify.rank.probes.saves import safetensors_module
from fsdplint.verify.warm_launcher import OVER, Order

_INTERVAL = 0.01


class _Job:
    """One order under way: a process that keeps its ranks and all that they start."""

    def __init__(self, order: Order) -> None:
        self.folder = order.folder
        self._port = ExitStack()
        port = self._port.enter_context(reserved_port())
        self._keeper = fork(partial(_keep, order, port))

    def over(self) -> bool:
        """True if nothing is left of it, and then marks the order's folder."""
        if not has_ended(self._keeper):
            return False
        reap(self._keeper)
        self._port.close()
        if Path(self.folder).exists():
            (Path(self.folder) / OVER).touch()
        return True

    def kill(self) -> None:
        """End what is left of it; `over` says when that is done."""
        os.kill(self._keeper, signal.SIGTERM)


def _keep(order: Order, port: int) -> NoReturn:
    """Fork the ranks of an order, and end all that they leave once they have ended."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, _leave)
    ranks = {fork(partial(_become, order, rank, port)): rank for rank in range(order.ranks)}
    follow_lifeline(Path(order.folder), end_descendants)
    while ranks:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended
        if ended.si_pid in ranks:
            note_death(Path(order.folder), ranks.pop(ended.si_pid), reap(ended.si_pid))
        else:  # its parent has ended before it
            os.waitpid(ended.si_pid, 0)
    _leave()


def _leave(*_: object) -> NoReturn:
    end_descendants()
    os._exit(0)


def _become(order: Order, rank: int, port: int) -> NoReturn:
    began = time.perf_counter()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    tempfile.tempdir = None  # it is remembered from the old environment
    os.environ.update(order.environment | launcher_environment(rank, order.ranks, port))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # else all ranks would draw the same numbers
    live(began)


def _serve() -> None:
    """Carry out orders until the input ends, then end all jobs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    safetensors_module()  # which each rank loads: once for all
    for name in sys.argv[1:]:
        import_module(name)
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
        while not all(job.over() for job in jobs):
            time.sleep(_INTERVAL)


def _lines(jobs: list[_Job]) -> Iterator[bytes]:
    """Yield each line of the input; look after `jobs` meanwhile."""
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
