"""Stacks of ranks: faulthandler writes each rank's stack, whatever it waits for."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fsdplint.verify.events import Place
from fsdplint.verify.request import SCRATCH, SURROUNDINGS

SIGNAL = signal.SIGUSR1
_PATIENCE = 1.0
"""Seconds in which a process that is not stopped answers a signal."""
_INTERVAL = 0.05
_THREAD = "(most recent call first):"
_FATAL = "Fatal Python error: "
_CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.M)
_STRUCK = re.compile(r"^Current thread .*(?:\n  .*)*", re.M)
_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)


def ask(folder: Path, pids: Mapping[int, int]) -> dict[int, tuple[Place, ...]]:
    """Return, per rank, the lines of the user's own code that its main thread is in, innermost
    first; a rank that does not answer has none."""
    before = {rank: _size(folder, rank) for rank in pids}
    for pid in filter(_answers, pids.values()):
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and any(_size(folder, r) == before[r] for r in pids):
        time.sleep(_INTERVAL)
    time.sleep(_INTERVAL)  # the last one may be half written
    return {rank: read(folder, rank, before[rank]) for rank in pids}


def _answers(pid: int) -> bool:
    """True if a process handles the signal, which would kill it otherwise, or if the system does
    not say."""
    with suppress(OSError):
        caught = _CAUGHT.search(Path(f"/proc/{pid}/status").read_text("utf-8"))
        return caught is None or bool(int(caught[1], 16) >> (SIGNAL - 1) & 1)
    return True


def read(folder: Path, rank: int, offset: int = 0) -> tuple[Place, ...]:
    """Return the last stack that a rank's main thread left behind `offset`; user's lines only.

    faulthandler lists threads by age, the youngest first, so that the main thread comes last.
    """
    with suppress(FileNotFoundError), (folder / f"{rank}.stacks").open("rb") as file:
        file.seek(offset)
        text = file.read().decode("utf-8", errors="replace")
        return tuple(_places(text.rpartition(_THREAD)[2], folder))
    return ()


def fatal(folder: Path, rank: int) -> str:
    """Return what faulthandler wrote when a signal killed the rank: the error, and the stack of the
    thread that it hit, or all stacks if that is unknown; empty without a signal."""
    file = folder / f"{rank}.stacks"
    text = file.read_text("utf-8", errors="replace") if file.exists() else ""
    _, head, rest = text.rpartition(_FATAL)
    struck = _STRUCK.search(rest)
    shown = f"{rest.splitlines()[0]}\n\n{struck[0]}" if struck else rest
    return f"{head}{shown}".replace(f"{folder / SCRATCH}{os.sep}", "").strip()


def _places(text: str, folder: Path) -> list[Place]:
    own = f"{folder / SURROUNDINGS}{os.sep}"
    return [
        Place(
            os.path.relpath(frame["path"], folder / SCRATCH), int(frame["line"]), frame["function"]
        )
        for frame in _FRAME.finditer(text)
        if frame["path"].startswith(own) and "site-packages" not in frame["path"]
    ]


def _size(folder: Path, rank: int) -> int:
    file = folder / f"{rank}.stacks"
    return file.stat().st_size if file.exists() else 0
