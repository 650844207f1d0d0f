"""Ties every process of a verification to its parent: when that is gone, they go, however it went.

The records' folder holds a pipe that the parent alone has open for writing; who reads from it
learns of the parent's end from the system, even where it was killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PIPE = "lifeline"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps the processes of this folder alive as long as the context lasts."""
    os.mkfifo(folder / _PIPE)
    end = os.open(folder / _PIPE, os.O_RDWR)
    try:
        yield
    finally:
        os.close(end)


def follow(folder: Path, end: Callable[[], None] | None = None) -> None:
    """Ends this process once nobody holds the folder.

    Args:
        end: what ends all that belongs to it; by default that is the group it leads, if it does.
    """
    # Without a writer, opening would wait for one, where reading sees the end.
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
