"""Room for the recursion that deeply nested code takes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_SIZE = 64 * 1024 * 1024
_RECURSION = 20_000

T = TypeVar("T")


def deep(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, running it on a stack that fits deeply nested code."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # whatever it is, `deep` raises it in the caller's thread
            errors.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_SIZE)
    # A daemon, so that an interrupt ends the process without waiting for it.
    thread = threading.Thread(target=run, daemon=True)
    try:
        sys.setrecursionlimit(max(limit, _RECURSION))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if errors:
        raise errors[0]
    return results[0]
