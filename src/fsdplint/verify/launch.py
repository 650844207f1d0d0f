"""Start ranks and end them: torch's own elastic launcher does the first.

Whatever happens, `Launched.stop` leaves no process behind. The ranks and all they start are below
one process that ends them, every rank leads its own process group and has recorded its id, and a
rank without a parent ends itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from fsdplint.verify.journal import last
from fsdplint.verify.processes import end_marked
from fsdplint.verify.request import REQUEST_VARIABLE, SCRATCH, Request

_AGENT = Path(__file__).parent / "agent.py"
_TEMPORARY = "tmp"
_ENTRY = Path(__file__).parent / "rank" / "__main__.py"
PATIENCE = 5.0
"""Seconds the launcher has to end once its ranks are gone."""
_OTHER_NODES = 120.0
"""Seconds it has where it waits for other nodes as well."""


class Launched(Protocol):
    """A set of ranks under way."""

    def running(self) -> bool:
        """True if the launcher still runs."""

    def wait(self) -> None:
        """Wait for the launcher, which may have other nodes to wait for, to end by itself."""

    def stop(self) -> None:
        """End the launcher and every rank, if need be by force."""

    def output(self) -> str:
        """Return what the launcher itself printed, apart from its ranks."""


class Launcher(Protocol):
    """Start the ranks of one request whose files lie in `folder`."""

    def __call__(self, request: Request, folder: Path) -> Launched: ...


def environment(folder: Path | None = None) -> dict[str, str]:
    """Return what every rank finds in its environment beside the launcher's own variables: also a
    place for temporary files, since torch's launcher and many scripts leave theirs behind.

    Args:
        folder: where its request and its records lie.
    """
    where: dict[str, str] = {}
    if folder is not None:
        (folder / _TEMPORARY).mkdir(exist_ok=True)
        where = {REQUEST_VARIABLE: str(folder), "TMPDIR": str(folder / _TEMPORARY)}
    return {
        **where,
        # What is compiled cannot be observed; the eager program computes the same.
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


class Elastic:
    """Ranks under ``torch.distributed.run`` (torchrun), one agent for this node."""

    def __init__(self, request: Request, folder: Path) -> None:
        self._folder, self._distributed = folder, bool(request.launcher)
        with (folder / "launcher.output").open("wb") as output:
            self._agent = subprocess.Popen(
                self._command(request),
                cwd=folder / SCRATCH,
                env={**os.environ, **environment(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    def _command(request: Request) -> list[str]:
        launcher = request.launcher or ("--standalone",)
        return [
            *(sys.executable, str(_AGENT)),
            *(*launcher, f"--nproc-per-node={request.ranks}", "--max-restarts=0"),
            str(_ENTRY),
        ]

    @property
    def pid(self) -> int:
        """The id of the process that keeps the agent and all that it starts."""
        return self._agent.pid

    def running(self) -> bool:
        """True if the agent still runs."""
        return self._agent.poll() is None

    def wait(self) -> None:
        """Wait for the agent; longer where it may have to wait for other nodes' agents."""
        with suppress(subprocess.TimeoutExpired):
            self._agent.wait(timeout=_OTHER_NODES if self._distributed else PATIENCE)

    def stop(self) -> None:
        """End the agent, every rank and all that they have started."""
        deadline = time.monotonic() + PATIENCE
        while self._distributed and self.running() and time.monotonic() < deadline:
            kill_ranks(self._folder)  # so that the agent informs the other nodes
            with suppress(subprocess.TimeoutExpired):
                self._agent.wait(timeout=0.1)
        self._agent.terminate()  # it ends first all that is left
        try:
            self._agent.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            # `Popen.wait` would wait for ever for the lock that Ctrl-C inside `poll` leaves held.
            with suppress(ChildProcessError):
                os.waitpid(self._agent.pid, 0)
        end_leftovers(self._folder)

    def output(self) -> str:
        """Return what the agent printed last."""
        return last(self._folder / "launcher.output")


def end_leftovers(folder: Path) -> None:
    """End what is left where the process that keeps the ranks was killed itself."""
    kill_ranks(folder)
    end_marked(f"{REQUEST_VARIABLE}={folder}")


def kill_ranks(folder: Path) -> None:
    """Kill the process group of every rank that has recorded its id."""
    for pid in rank_pids(folder).values():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def rank_pids(folder: Path) -> dict[int, int]:
    """Return the ids of the ranks that have begun, by rank."""
    found = {}
    for file in folder.glob("*.pid"):
        with suppress(ValueError):  # being written right now
            found[int(file.stem)] = int(file.read_text())
    return found
