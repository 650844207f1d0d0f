"""The processes of a verification: find them, distinguish waiting from working, and end them.

A process that calls `adopt_orphans` becomes the parent of every process below it whose own parent
has ended, as a daemon's has. Only Linux can do that; elsewhere, a process that leaves its session
is not found.

The records' folder holds a pipe, the lifeline, that only the parent has open for writing. Whoever
reads from it learns from the system when the parent ends, even if it was killed.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fsdplint.verify.figures import ranks_in_words

_PROC = Path("/proc")
_STATE, _PARENT, _GROUP, _USER, _SYSTEM = 0, 1, 2, 11, 12
"""Fields of /proc/PID/stat after the command's name, from 0: proc(5)."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: prctl(2)."""
_PATIENCE = 3.0
"""Seconds after which a process that cannot be killed is left alone."""
_INTERVAL = 0.01
_PIPE, _DEATHS = "lifeline", "deaths"


def adopt_orphans() -> None:
    """Make this process the parent of all orphans below it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill every process below this one."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _below(os.getpid())) and time.monotonic() < deadline:
        _kill(found)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_INTERVAL)


def end_marked(mark: str) -> None:
    """Kill every process that was started with ``NAME=value`` in its environment."""
    deadline = time.monotonic() + _PATIENCE
    left: set[int] = set()
    while time.monotonic() < deadline:
        found = _marked(f"{mark}\0".encode())
        _kill(found)
        # A process that is ending no longer shows its environment.
        left = {pid for pid in left | found if _is_alive(pid)}
        if not left:
            return
        time.sleep(_INTERVAL)


def cpu_seconds(groups: Collection[int]) -> dict[int, float]:
    """Return the CPU seconds of the living processes of each process group.

    A group with a process that waits for a disk has infinity. The result is empty where the system
    has no /proc: nobody can be called idle there.
    """
    if not (_PROC / "self" / "stat").exists():
        return {}
    found = dict.fromkeys(groups, 0.0)
    for _, fields in _stats():
        group = int(fields[_GROUP])
        if group in found:
            ticks = int(fields[_USER]) + int(fields[_SYSTEM])
            found[group] += ticks / os.sysconf("SC_CLK_TCK")
            if fields[_STATE] == "D":
                found[group] = math.inf
    return found


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _below(top: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in _stats():
        children[int(fields[_PARENT])].append(pid)
    found = children[top][:]
    for pid in found:  # the list grows during the loop
        found += children[pid]
    return found


def _is_alive(pid: int) -> bool:
    try:
        return _stat(_PROC / str(pid) / "stat")[_STATE] != "Z"
    except OSError:
        return False


def _stats() -> Iterator[tuple[int, list[str]]]:
    for file in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            yield int(file.parent.name), _stat(file)


def _stat(file: Path) -> list[str]:
    return file.read_text("ascii", errors="replace").rpartition(") ")[2].split()


def _marked(mark: bytes) -> set[int]:
    found = set()
    for file in _PROC.glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's process, or it has just ended
            if b"\0" + mark in b"\0" + file.read_bytes():
                found.add(int(file.parent.name))
    return found


@contextmanager
def lifeline(folder: Path) -> Iterator[None]:
    """Keep the processes of this folder alive as long as the context lasts."""
    os.mkfifo(folder / _PIPE)
    end = os.open(folder / _PIPE, os.O_RDWR)
    try:
        yield
    finally:
        os.close(end)


def follow_lifeline(folder: Path, end: Callable[[], None] | None = None) -> None:
    """End this process once nobody holds the folder's lifeline.

    Args:
        end: ends all that belongs to this process; by default, the group that it leads, if any.
    """
    # Without a writer, opening for writing would block, and reading sees the end of the file.
    pipe = os.open(folder / _PIPE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    threading.Thread(target=_end_with, args=(pipe, end or _end_group), daemon=True).start()


def _end_with(pipe: int, end: Callable[[], None]) -> None:
    os.read(pipe, 1)
    end()
    os._exit(1)


def _end_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one rank's process, as the process that reaps it records it.

    Attributes:
        status: its exit status, or the negative number of the signal that killed it.
        time: when it was noticed, on a clock that all processes of a node share.
    """

    status: int
    time: float


def note_death(folder: Path, rank: int, status: int) -> None:
    """Record how a rank's process ended."""
    file = os.open(folder / _DEATHS, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(file, f"{rank} {status} {time.monotonic()}\n".encode())
    os.close(file)


def read_deaths(folder: Path) -> dict[int, Death]:
    """Return the recorded ends, by rank."""
    if not (folder / _DEATHS).exists():
        return {}
    lines = (folder / _DEATHS).read_text().splitlines()
    return {int(rank): Death(int(status), float(at)) for rank, status, at in map(str.split, lines)}


def death_in_words(status: int | None) -> str:
    """Describe how a process ended, e.g. ``killed by SIGSEGV``."""
    if status is None:
        return "died"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def death_sentence(ranks: Sequence[int], status: int | None) -> str:
    """Describe which ranks ended that way, and what may have ended them."""
    who, how, alone = ranks_in_words(ranks), death_in_words(status), len(ranks) == 1
    if status is None:
        return f"{who} died"
    if status >= 0:
        return f"{who} {how} before the end of {'its' if alone else 'their'} script"
    memory = ", which the system sends when memory runs out (see dmesg)"
    return f"{who} {'was' if alone else 'were'} {how}{memory * (status == -signal.SIGKILL)}"


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a port of this machine for the ranks' store as long as the context lasts.

    A bound socket that never listens keeps the port from everyone but a rank that asks for this
    very port with SO_REUSEADDR, as torch's TCPStore does.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def launcher_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Return what torchrun would set in one rank of one node (torch 2.13)."""
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(rank)),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(world_size)),
        **dict.fromkeys(("MASTER_PORT", "TORCHELASTIC_RUN_ID"), str(port)),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def fork(body: Callable[[], NoReturn]) -> int:
    """Fork a process that runs `body`, which ends it, and return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            body()
        finally:
            os._exit(1)
    with suppress(ProcessLookupError):
        os.setpgid(pid, pid)
    return pid


def has_ended(pid: int) -> bool:
    """True if a child waits to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(pid: int) -> int:
    """End a child and whatever it started, by force; return its exit status, or the negative
    number of the signal that killed it.

    The group goes first: while its leader is a zombie, no other process can take its id.
    """
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
