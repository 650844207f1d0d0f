"""Runs a piece of code on several gloo ranks, forked from a process that has torch loaded.

Importing torch and FSDP costs each rank seconds; a fork of a warm, single-threaded server costs
a third of one. `Ranks` owns such a server: this file, run as a script in its own interpreter,
answering one JSON request per line. The server never initialises a process group and never runs
the code itself, so that nothing one request does can reach the next.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn, TextIO

from waiting import LONG

from fsdplint.verify.processes import fork, has_ended, launcher_environment, reap, reserved_port

PRELOADED = (
    "fsspec.core",  # when a checkpoint is written
    "pytest",  # most proofs expect errors by it
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint._fsspec_filesystem",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.utils.checkpoint",
)
GRACE = 3.0
"""Seconds that the other ranks may do nothing once one of them failed."""
DYING = 30.0
"""Seconds a rank that is told to stop has to write down where it was."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run; the fields are those of `Ranks.run`."""

    code: str
    path: str
    world_size: int
    arguments: tuple[str, ...]
    process_group: bool
    timeout: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one rank ended: `error` is empty where it ran to its end, else says what stopped it."""

    rank: int
    error: str
    output: str


def report(outcomes: Sequence[Outcome]) -> str:
    """Returns what the failed ranks say, or an empty string where none failed."""
    return "\n".join(f"rank {o.rank}: {o.error}\n{o.output}" for o in outcomes if o.error)


class Ranks:
    """A server of ranks; leaving the context ends it and whatever it still runs.

    Args:
        preloaded: the modules the server imports once, for every rank to come.
    """

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__, *preloaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin and self._server.stdout
        with suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait(timeout=LONG)
        self._server.stdout.close()

    def run(
        self,
        code: str,
        *,
        path: str = "<ranks>",
        world_size: int = 2,
        arguments: Sequence[str] = (),
        process_group: bool = True,
        timeout: float = LONG,
    ) -> tuple[Outcome, ...]:
        """Runs `code` as ``__main__`` on every rank and returns how each one ended.

        Args:
            path: the file the code is from, for tracebacks and as ``sys.path[0]``.
            arguments: what follows the script's name in ``sys.argv``.
            process_group: initialise the gloo group first; a script may do so itself.
            timeout: seconds after which ranks still running are killed and reported.

        Raises:
            RuntimeError: the server is gone.
        """
        request = Request(code, path, world_size, tuple(arguments), process_group, timeout)
        assert self._server.stdin and self._server.stdout
        with suppress(BrokenPipeError):
            self._server.stdin.write(json.dumps(asdict(request)) + "\n")
            self._server.stdin.flush()
        reply = self._server.stdout.readline()
        if not reply:
            raise RuntimeError(f"the rank server ended with status {self._server.wait()}")
        return tuple(Outcome(**fields) for fields in json.loads(reply))


def _serve() -> None:
    """Answers requests from stdin until it is closed; what else prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for module in sys.argv[1:]:
        import_module(module)
    gc.freeze()  # else a collection in a rank would copy every page that it shares with the server
    while line := _read_line():
        outcomes = _answer(Request(**json.loads(line)))
        replies.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")
        replies.flush()


def _read_line() -> bytes:
    """Reads stdin unbuffered, so that it is readable during a request only once it is closed."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        line += piece
    return line


def _answer(request: Request) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as name, reserved_port() as port:
        folder = Path(name)
        (folder / "cwd").mkdir()
        running = {
            fork(partial(_become, request, rank, port, folder)): rank
            for rank in range(request.world_size)
        }
        causes = _wait(running, request.timeout)
        return [_outcome(folder, rank, cause) for rank, cause in sorted(causes.items())]


def _wait(running: dict[int, int], timeout: float) -> dict[int, str]:
    """Reaps every rank, killing what outlasts its time; returns why each one stopped."""
    causes: dict[int, str] = {}
    end, work = time.monotonic() + timeout, -1
    limit, overdue = end, f"timed out after {timeout:g} s"
    while running:
        for pid in [pid for pid in running if has_ended(pid)]:
            causes[running.pop(pid)] = _cause(reap(pid))
        if any(causes.values()) and (done := sum(map(_ticks, running))) > work:
            work = done
            limit = min(end, time.monotonic() + GRACE)
            overdue = "stopped, since another rank failed"
        caller_gone = bool(select.select([0], [], [], 0.01)[0])
        if running and (caller_gone or time.monotonic() > limit):
            causes |= dict.fromkeys(running.values(), overdue)
            _kill(list(running))
            running = {}
    return causes


def _ticks(pid: int) -> int:
    """The processor time of a process so far: one that waits for another rank uses none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _cause(status: int) -> str:
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else ""


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGABRT)
    deadline = time.monotonic() + DYING
    while not all(map(has_ended, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in pids:
        reap(pid)


def _outcome(folder: Path, rank: int, cause: str) -> Outcome:
    trace = (folder / f"{rank}.trace").read_text()
    output = (folder / f"{rank}.output").read_text(errors="replace")
    return Outcome(rank, f"{cause}\n{trace}".strip() if cause else "", output)


def _become(request: Request, rank: int, port: int, folder: Path) -> NoReturn:
    """Turns this fork into the rank; ends without interpreter shutdown, where FSDP1 may crash."""
    status = 1
    with (folder / f"{rank}.trace").open("w") as trace:
        try:
            _settle(request, rank, port, folder, trace)
            _execute(request)
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:  # whatever ends the code is this rank's outcome, never the server's
            traceback.print_exc(file=trace)
        finally:
            trace.flush()
            sys.stdout.flush()
            os._exit(status)


def _settle(request: Request, rank: int, port: int, folder: Path, trace: TextIO) -> None:
    faulthandler.enable(trace)
    output = os.open(folder / f"{rank}.output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder / "cwd")
    os.environ |= launcher_environment(rank, request.world_size, port)


def _execute(request: Request) -> None:
    if request.process_group:
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=timedelta(seconds=request.timeout))
        dist.barrier()  # else short code on rank 0 ends its store while others still ask it
    main = ModuleType("__main__")
    main.__file__ = request.path
    sys.modules["__main__"] = main
    sys.path[0] = str(Path(request.path).parent)
    sys.argv = [request.path, *request.arguments]
    exec(compile(request.code, request.path, "exec"), main.__dict__)


if __name__ == "__main__":
    _serve()
