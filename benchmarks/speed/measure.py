"""One run of a command: wall time, CPU time and peak memory of all its processes together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_INTERVAL = 0.02  # seconds between two looks at the memory


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took.

    Attributes:
        wall: seconds from its start to its end.
        cpu: seconds, user and system, of it and of the processes it waited for.
        memory: bytes that were resident at once, summed over its processes. What they share counts
            for each of them.
        ended: whether it came to its end within its time.
    """

    wall: float
    cpu: float
    memory: int
    ended: bool = True


def middle(costs: Sequence[Cost]) -> Cost:
    """The medians of several runs."""
    return Cost(
        median(cost.wall for cost in costs),
        median(cost.cpu for cost in costs),
        int(median(cost.memory for cost in costs)),
        all(cost.ended for cost in costs),
    )


def cost_of(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    limit: float = 3600,
    codes: Sequence[int] = (0, 1),
) -> Cost:
    """Runs ``command`` in ``folder`` and ends it after ``limit`` seconds.

    Raises:
        RuntimeError: it ended by itself with none of ``codes``; 1 is that it found something.
    """
    sink = subprocess.DEVNULL
    environment = {**as_installed(), **(variables or {})}
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=sink,
        stderr=sink,
        start_new_session=True,
    )
    watch = _Watch(process.pid, started + limit)
    watch.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    watch.done.set()
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes and not watch.late:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    # What the system tells at the end counts this process's own, which the other began as.
    memory = watch.peak or usage.ru_maxrss * 1024
    cpu = max(watch.spent, usage.ru_utime + usage.ru_stime)
    return Cost(wall, cpu, memory, ended=not watch.late)


def as_installed() -> dict[str, str]:
    """The environment, in which a first run leaves byte code, as pip does where it installs."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class _Watch(threading.Thread):
    """Looks at the memory of a process and of those below it until ``done`` is set."""

    def __init__(self, pid: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.deadline = deadline
        self.done = threading.Event()
        self.peak = 0
        self.late = False
        self.spent = 0.0  # CPU seconds until it is ended for being late

    def run(self) -> None:
        while not self.done.wait(_INTERVAL):
            self.peak = max(self.peak, sum(map(_resident, _tree(self.pid))))
            if time.perf_counter() > self.deadline and not self.late:
                self.late = True
                self.spent = sum(map(_seconds, _tree(self.pid)))
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)


def _tree(pid: int) -> list[int]:
    """A process and all below it, as far as Linux tells; elsewhere nothing is below it."""
    found = [pid]
    for parent in found:
        with suppress(OSError):  # it has ended
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found.extend(map(int, children.read_text().split()))
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended, or there is no /proc
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _seconds(pid: int) -> float:
    """What a process that runs, and those it waited for, have taken so far."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # as above
        return 0.0
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")
