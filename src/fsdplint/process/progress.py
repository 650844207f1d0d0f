"""A sign of life on standard error while long work goes on."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 1.0  # seconds


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show ``message`` once the body has taken a second, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        print(message, end="", file=sys.stderr, flush=True)

    timer = threading.Timer(_PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shown.is_set():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Give what shows a line in the place of the one before, if standard error is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield lambda _: None
        return
    began, last = time.monotonic(), ""

    def show(text: str) -> None:
        nonlocal last
        line = f"fsdplint: {text} ({time.monotonic() - began:.0f} s)"
        if line != last:
            last = line
            room = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:room]}", end="", file=stream, flush=True)

    try:
        yield show
    finally:
        if last:
            print("\r\x1b[K", end="", file=stream, flush=True)
