"""Runs of the engine: one at a time, outside the thread that talks to the editor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fsdplint.outcome import Outcome
from fsdplint.server.analysis import Analysis
from fsdplint.server.session import Snapshot

if TYPE_CHECKING:
    from fsdplint.engine.inspection.summary import Inspection

T = TypeVar("T")
Inspected = tuple["Inspection", Outcome]
"""What the engine knows of a file, and the sources of its places."""


class OutdatedError(Exception):
    """The state that a result was requested for is not the current one any more."""


class Runs:
    """The outcome of each project's latest state, computed once."""

    def __init__(self) -> None:
        self._analyses: dict[str, Analysis] = {}
        self._known: dict[tuple[str, bool], tuple[Snapshot, Outcome]] = {}
        self._inspected: dict[str, tuple[Snapshot, Inspected]] = {}
        self._turn = asyncio.Lock()

    async def outcome(self, snapshot: Snapshot, current: Callable[[], Snapshot]) -> Outcome:
        """Return the outcome for ``snapshot``.

        Args:
            current: returns the state as it is.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        key = snapshot.root, snapshot.paths == tuple(sorted(snapshot.buffers))
        async with self._turn:
            if current() != snapshot:
                raise OutdatedError
            known = self._known.get(key)
            if known is None or known[0] != snapshot:
                analysis = self.analysis(snapshot.root)
                arguments = snapshot.paths, snapshot.choices, snapshot.buffers
                outcome = await _in_thread(lambda: analysis.check(*arguments))
                known = self._known[key] = snapshot, outcome
        if current() != snapshot:
            raise OutdatedError
        return known[1]

    async def inspection(
        self, path: str, snapshot: Snapshot, current: Callable[[], Snapshot]
    ) -> Inspected:
        """Return what the engine knows of the file at ``path`` in the state ``snapshot``.

        Args:
            current: returns the state as it is.

        Raises:
            OutdatedError: the state has changed in the meantime.
            SourceError: the file is not Python.
        """
        async with self._turn:
            if current() != snapshot:
                raise OutdatedError
            known = self._inspected.get(path)
            if known is None or known[0] != snapshot:
                analysis = self.analysis(snapshot.root)
                found = await _in_thread(lambda: analysis.inspect(path, snapshot.buffers))
                known = self._inspected[path] = snapshot, found
        return known[1]

    async def alone(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which no other run of the engine overlaps."""
        async with self._turn:
            return await _in_thread(work)

    def analysis(self, root: str) -> Analysis:
        """Return the analysis of the project at ``root``, which lasts as long as the session."""
        return self._analyses.setdefault(root, Analysis(root))


async def _in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, from a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def end(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            value = work()
            result = partial(future.set_result, value)
        except BaseException as error:  # whatever it is, it is raised where it is awaited
            result = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(end, result)

    threading.Thread(target=run, name="fsdplint", daemon=True).start()
    return await future
