"""Parallel lowering: other processes lower the files of a large project.

What they lower is what the run would: a process gets a text and gives back its row of `IRCache`.
The run waits for what one is at; what none has begun, or one failed on, it lowers itself. So
nothing depends on them but how long it takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import TYPE_CHECKING

from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.lower import lower
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.process.child import command
from fsdplint.process.stack import deep

if TYPE_CHECKING:
    from subprocess import Popen

# A process takes 60 to 100 MB. With fewer characters the run waits for it as long as it saves.
_CHARACTERS_EACH = 2_000_000
_MAX_PROCESSES = 4


@contextmanager
def lower_in_parallel(ir_cache: IRCache | None, files: Iterable[str]) -> Iterator[None]:
    """Lowers the texts of ``files`` beside what is done in the meantime, if that pays."""
    texts = [text for text in files if ir_cache and not ir_cache.has_module(text)]
    count = _processes(sum(map(len, texts)))
    if ir_cache is None or not count:
        yield
        return
    workers = Workers(texts, ir_cache)
    try:
        workers.start(count)
        ir_cache.wait_for = workers.wait_for
        yield
    finally:
        ir_cache.wait_for = None
        workers.stop()


def _processes(characters: int) -> int:
    """How many processes pay for themselves."""
    return min(_cores() - 1, _MAX_PROCESSES, characters // _CHARACTERS_EACH)


def _cores() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _started(thread: Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:  # the system has no more
        return False
    return True


class Workers:
    """Processes that lower, each served by a thread.

    Attributes:
        waiting: the texts that none has begun.
        taken: those of all that the run has come to itself.
        begun: those that one is at.
    """

    def __init__(self, texts: Iterable[str], ir_cache: IRCache) -> None:
        self.ir_cache = ir_cache
        self.waiting = deque(texts)
        self.taken: set[str] = set()
        self.begun: set[str] = set()
        self.changed = Condition()
        self.served: list[tuple[Popen[bytes], Thread]] = []

    def start(self, count: int) -> None:
        """Starts ``count`` processes, as far as the system lets it."""
        from subprocess import DEVNULL, PIPE, Popen  # slow to import

        with suppress(OSError, TypeError, ValueError):  # no more, or no Python to start
            for _ in range(count):
                process = Popen(command(__name__), stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
                thread = Thread(target=self._serve, args=(process,), daemon=True)
                if not _started(thread):
                    process.kill()
                    process.communicate()
                    break
                self.served.append((process, thread))

    def wait_for(self, text: str) -> None:
        """Returns when no process is at ``text``, nor will begin it."""
        with self.changed:
            self.taken.add(text)
            while text in self.begun:
                self.changed.wait()

    def stop(self) -> None:
        """Ends the processes, whatever they are at."""
        with self.changed:
            self.waiting.clear()
        for process, _ in self.served:
            process.kill()
        for _, thread in self.served:
            thread.join()

    def _serve(self, process: Popen[bytes]) -> None:
        with suppress(OSError, ValueError), process:  # it may have ended
            while (text := self._next()) is not None:
                try:
                    self._ask(process, text)
                finally:
                    self._done(text)

    def _next(self) -> str | None:
        with self.changed:
            while self.waiting:
                text = self.waiting.popleft()
                if text not in self.taken:
                    self.begun.add(text)
                    return text
            return None

    def _done(self, text: str) -> None:
        with self.changed:
            self.begun.discard(text)
            self.changed.notify_all()

    def _ask(self, process: Popen[bytes], text: str) -> None:
        """Has ``process`` lower a file.

        Raises:
            OSError: it has ended.
        """
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(text).encode("ascii") + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline().decode("ascii")
        if not answer:
            raise BrokenPipeError
        key, _, row = answer.strip().partition(" ")
        if row:
            self.ir_cache.parallel[key] = row


# What a process runs


def main() -> None:
    # An interrupt is for who started it, who then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deep(_serve)


def _serve() -> None:
    for line in sys.stdin:
        print(_row(json.loads(line)), flush=True)


def _row(text: str) -> str:
    """By what a file is known, and what its top level is lowered to; empty if it cannot be."""
    ir_cache = IRCache({})
    try:
        lower(text, "", ir_cache)
    except (InvalidSyntax, TooDemanding):  # which the other process finds, and tells
        return ""
    return " ".join(*ir_cache.used.items()) if ir_cache.used else ""
