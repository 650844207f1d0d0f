"""Parallel lowering: other processes lower the files of a large project.

A process reads texts from its input and writes a row of `IRCache` for each, the same that the run
would make. The run waits for a text that a process is lowering, and lowers those itself that none
has begun or one failed on. So the processes only affect how long it takes.
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

# A process takes 60 to 100 MB. With fewer characters its start takes as long as it saves.
_CHARACTERS_EACH = 2_000_000
_MAX_PROCESSES = 4


@contextmanager
def lower_in_parallel(ir_cache: IRCache | None, files: Iterable[str]) -> Iterator[None]:
    """Lower the texts of ``files`` in the background, if that pays."""
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
    """Return how many processes pay for themselves."""
    return min(_cores() - 1, _MAX_PROCESSES, characters // _CHARACTERS_EACH)


def _cores() -> int:
    """Return how many cores this process may run on."""
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
        waiting: the texts that no process has begun.
        taken: the texts that the run has reached itself.
        begun: the texts that a process is lowering.
    """

    def __init__(self, texts: Iterable[str], ir_cache: IRCache) -> None:
        self.ir_cache = ir_cache
        self.waiting = deque(texts)
        self.taken: set[str] = set()
        self.begun: set[str] = set()
        self.changed = Condition()
        self.served: list[tuple[Popen[bytes], Thread]] = []

    def start(self, count: int) -> None:
        """Start ``count`` processes, or fewer if the system has no more."""
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
        """Wait until no process is lowering ``text``, and keep others from beginning it."""
        with self.changed:
            self.taken.add(text)
            while text in self.begun:
                self.changed.wait()

    def stop(self) -> None:
        """Kill the processes."""
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
        """Have ``process`` lower a file.

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


# The code of a process


def main() -> None:
    """Lower one text per line of input; end with the input, and so with the parent process."""
    # The parent process handles an interrupt, and then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deep(_serve)


def _serve() -> None:
    for line in sys.stdin:
        print(_row(json.loads(line)), flush=True)


def _row(text: str) -> str:
    """Return the key and the row of a file's top level; empty if it cannot be lowered."""
    ir_cache = IRCache({})
    try:
        lower(text, "", ir_cache)
    except (InvalidSyntax, TooDemanding):  # the run reports it
        return ""
    return " ".join(*ir_cache.used.items()) if ir_cache.used else ""
