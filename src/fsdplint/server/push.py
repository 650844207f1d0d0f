"""Push diagnostics: the server sends them shortly after the last change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lsprotocol import types

PAUSE = 0.02
"""Seconds from the last change to the check."""
Found = dict[str, "tuple[int | None, Sequence[types.Diagnostic]]"]
"""Diagnostics by address, and the version of the document that they are for."""
Send = Callable[[types.PublishDiagnosticsParams], None]
Compute = Callable[[], Awaitable["Found | None"]]


class Push:
    """Send the diagnostics of open documents, by address, whenever they have changed.

    Args:
        compute: returns the diagnostics of the current state, None if it changed meanwhile.
    """

    def __init__(self, compute: Compute, send: Send) -> None:
        self._compute = compute
        self._send = send
        self._sent: Found = {}
        self._changes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def soon(self, delay: float) -> None:
        """Send diagnostics after ``delay`` seconds, unless this is called again before."""
        self._changes += 1
        task = asyncio.get_running_loop().create_task(self._after(delay, self._changes))
        self._tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)

    async def _after(self, delay: float, change: int) -> None:
        await asyncio.sleep(delay)
        if change != self._changes:
            return
        found = await self._compute()
        if found is None or change != self._changes:
            return
        for uri in self._sent.keys() - found.keys():
            del self._sent[uri]
            self._send(types.PublishDiagnosticsParams(uri, []))
        for uri, (version, diagnostics) in found.items():
            if self._sent.get(uri) != (version, diagnostics):
                self._sent[uri] = version, diagnostics
                self._send(types.PublishDiagnosticsParams(uri, diagnostics, version))
