"""Run the engine, one run at a time, outside the thread that talks to the editor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from fsdplint.finding import Finding
from fsdplint.outcome import Changes, Outcome, OutdatedError
from fsdplint.server.analysis import Analysis
from fsdplint.server.session import Snapshot

if TYPE_CHECKING:
    from fsdplint.engine.inspection.summary import Inspection

T = TypeVar("T")
Work = Callable[[Callable[[], bool]], T]
"""Compute a result; the argument returns True once nobody waits for it any more."""
_POLL = 0.05
"""Seconds between checks whether a run is outdated."""
Inspected = tuple["Inspection", Outcome]
"""What the engine knows of a file, and the sources of its places."""


class Runs:
    """The results for each project's latest state, computed once."""

    def __init__(self) -> None:
        self._analyses: dict[str, Analysis] = {}
        self._known: dict[tuple[str, str], tuple[Snapshot, object]] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()

    async def outcome(self, snapshot: Snapshot, current: Callable[[], Snapshot]) -> Outcome:
        """Return the outcome for ``snapshot``.

        Args:
            current: returns the state as it is.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        analysis = self.analysis(snapshot.root)
        what = "files" if snapshot.buffers.keys() == set(snapshot.paths) else "folder"

        def work(is_outdated: Callable[[], bool]) -> Outcome:
            return analysis.check(snapshot.paths, snapshot.choices, snapshot.buffers, is_outdated)

        return await self._computed(what, work, snapshot, current)

    async def inspection(
        self, path: str, snapshot: Snapshot, current: Callable[[], Snapshot]
    ) -> Inspected:
        """Return what the engine knows of the file at ``path`` in the state ``snapshot``.

        Raises:
            OutdatedError: the state has changed in the meantime.
            SourceError: the file is not Python.
        """
        analysis = self.analysis(snapshot.root)

        def work(_: object) -> Inspected:
            return analysis.inspect(path, snapshot.buffers)

        return await self._computed(path, work, snapshot, current)

    async def changes(
        self, path: str, snapshot: Snapshot, current: Callable[[], Snapshot]
    ) -> Changes:
        """Return the changes of all safe fixes in the file at ``path``.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        analysis = self.analysis(snapshot.root)

        def work(_: object) -> Changes:
            return analysis.fixed(path, snapshot.choices, snapshot.buffers)

        return await self._computed(f"changes of {path}", work, snapshot, current)

    async def cured(
        self,
        finding: Finding,
        reason: str,
        outcome: Outcome,
        snapshot: Snapshot,
        current: Callable[[], Snapshot],
    ) -> Changes:
        """Return the changes that end a finding of ``outcome``, which is that of ``snapshot``.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        analysis = self.analysis(snapshot.root)

        def work(_: object) -> Changes:
            choices, buffers = snapshot.choices, snapshot.buffers
            return analysis.cured(outcome, finding, reason, choices, buffers)

        what = f"cure of {finding.rule} at {finding.span} {reason}"
        return await self._computed(what, work, snapshot, current)

    def analysis(self, root: str) -> Analysis:
        """Return the analysis of the project at ``root``, which lasts as long as the session."""
        return self._analyses.setdefault(root, Analysis(root))

    async def _computed(
        self, what: str, work: Work[T], snapshot: Snapshot, current: Callable[[], Snapshot]
    ) -> T:
        """Return what ``work`` returns for ``snapshot``, or returned before."""

        async def in_turn() -> T:
            async with self._turn:
                if current() != snapshot:
                    raise OutdatedError
                known = self._known.get((snapshot.root, what))
                if known is not None and known[0] == snapshot:
                    return cast("T", known[1])
                outdated = threading.Event()
                run = asyncio.ensure_future(_in_thread(partial(work, outdated.is_set)))
                while not (await asyncio.wait((run,), timeout=_POLL))[0]:
                    if current() != snapshot:
                        outdated.set()
                found = await run
                self._forget(snapshot)
                self._known[snapshot.root, what] = snapshot, found
                return found

        # If a request is cancelled, its thread goes on, and no other run may start before it ends.
        task = asyncio.ensure_future(in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        found = await asyncio.shield(task)
        if current() != snapshot:
            raise OutdatedError
        return found

    def _forget(self, snapshot: Snapshot) -> None:
        """Forget results for earlier texts of the files that ``snapshot`` has."""
        for key, (old, _) in list(self._known.items()):
            both = old.buffers and snapshot.buffers  # a folder is read from the disk
            if both and old.root == snapshot.root and old != snapshot:
                del self._known[key]

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is raised where somebody waits, if anybody still does


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
