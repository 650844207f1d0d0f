"""A launcher for many verifications: its ranks are forked from a process with torch loaded.

Several requests may be under way at once. One node only: a request's launcher options have
nothing to say here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fsdplint.verify.launch import PATIENCE, end_leftovers, environment
from fsdplint.verify.request import Request
from fsdplint.verify.workspace import workspace

OVER = "over"
"""The file that marks a job's end."""
_SERVER = Path(__file__).parent / "rank" / "server.py"
_INTERVAL = 0.01


@dataclass(frozen=True, slots=True)
class Order:
    """One line to the server: start the ranks of `folder`, or end them (`ranks` is 0)."""

    folder: str
    ranks: int
    environment: dict[str, str]


class Warm:
    """Ranks from one server process; leaving the context ends it and all it runs.

    Args:
        preloaded: modules besides torch that are imported once, for all ranks.
    """

    def __init__(self, preloaded: Sequence[str] = ()) -> None:
        self._stack = ExitStack()
        temporary = self._stack.enter_context(workspace())
        self._server = subprocess.Popen(
            [sys.executable, str(_SERVER), *preloaded],
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                **environment(),
                "OMP_NUM_THREADS": "1",
                "TMPDIR": str(temporary),
            },
            start_new_session=True,
        )

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin
        with suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait()
        self._stack.close()

    def __call__(self, request: Request, folder: Path) -> Job:
        """Start the ranks of one request."""
        self.order(Order(str(folder), request.ranks, {**os.environ, **environment(folder)}))
        return Job(self, folder)

    def order(self, order: Order) -> None:
        """Send one order; a server that is gone gets none."""
        assert self._server.stdin
        with suppress(BrokenPipeError):
            self._server.stdin.write(f"{json.dumps(asdict(order))}\n".encode())
            self._server.stdin.flush()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    def alive(self) -> bool:
        """True if the server is there."""
        return self._server.poll() is None


class Job:
    """The ranks of one request."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm, self._folder = warm, folder

    def running(self) -> bool:
        """True if one of the ranks is still there."""
        return self._warm.alive() and not (self._folder / OVER).exists()

    def wait(self) -> None:
        """Wait for the ranks to end by themselves."""
        deadline = time.monotonic() + PATIENCE
        while self.running() and time.monotonic() < deadline:
            time.sleep(_INTERVAL)

    def stop(self) -> None:
        """Kill the ranks that are left."""
        if self.running():
            self._warm.order(Order(str(self._folder), 0, {}))
            self.wait()
        end_leftovers(self._folder)

    def output(self) -> str:
        """Report that the server is gone, if it is."""
        return "" if (self._folder / OVER).exists() else "the process that starts ranks died"
