"""A sign of life on standard error while long work goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
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
