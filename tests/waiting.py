"""Waits for what another process or thread does. Nothing here fails because a machine is busy."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 300.0
"""Seconds after which what has not happened will not: more than any machine takes for it."""


def comes(condition: Callable[[], object]) -> bool:
    """Says whether the condition becomes true, as soon as it does."""
    deadline = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
