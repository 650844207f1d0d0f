"""Finds and ends all that a process has started, also what has detached itself from it.

A process that `adopt`s becomes the parent of every process below it whose own parent has ended, as
a daemon's has. Only Linux can do that; elsewhere a process that leaves its session is not found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: prctl(2)."""
_STATE, _PARENT = 0, 1
"""Fields of /proc/PID/stat behind the command's name, from 0: proc(5)."""
_PATIENCE = 3.0
"""Seconds after which what cannot be killed is left alone."""
_INTERVAL = 0.01


def adopt() -> None:
    """Makes this process the parent of all orphans below it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Kills every process below this one."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _below(os.getpid())) and time.monotonic() < deadline:
        _kill(found)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_INTERVAL)


def end_marked(mark: str) -> None:
    """Kills every process that was started with an environment that holds ``NAME=value``."""
    deadline = time.monotonic() + _PATIENCE
    left: set[int] = set()
    while time.monotonic() < deadline:
        found = _marked(f"{mark}\0".encode())
        _kill(found)
        left = set(filter(_runs, left | found))  # one that ends shows no environment any more
        if not left:
            return
        time.sleep(_INTERVAL)


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _below(top: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for file in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            children[int(_stat(file)[_PARENT])].append(int(file.parent.name))
    found = children[top][:]
    for pid in found:  # grows as it goes
        found += children[pid]
    return found


def _runs(pid: int) -> bool:
    try:
        return _stat(_PROC / str(pid) / "stat")[_STATE] != "Z"
    except OSError:
        return False


def _stat(file: Path) -> list[str]:
    return file.read_text("ascii", errors="replace").rpartition(") ")[2].split()


def _marked(mark: bytes) -> set[int]:
    found = set()
    for file in _PROC.glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or it has just ended
            if b"\0" + mark in b"\0" + file.read_bytes():
                found.add(int(file.parent.name))
    return found
