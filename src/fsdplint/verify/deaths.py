"""How the processes of ranks ended, as the process that reaps them notes it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.verify.figures import ranks_in_words

_FILE = "deaths"
_HINTS = {signal.SIGKILL: ", which the system sends when memory runs out (see dmesg)"}


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one rank's process.

    Attributes:
        status: its exit status, or the negative number of the signal that killed it.
        time: when it was noticed, on a clock that all processes of a node share.
    """

    status: int
    time: float


def note(folder: Path, rank: int, status: int) -> None:
    """Writes down how a rank's process ended."""
    file = os.open(folder / _FILE, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(file, f"{rank} {status} {time.monotonic()}\n".encode())
    os.close(file)


def read(folder: Path) -> dict[int, Death]:
    """Returns the ends that were noted, by rank."""
    if not (folder / _FILE).exists():
        return {}
    lines = (folder / _FILE).read_text().splitlines()
    return {int(rank): Death(int(status), float(at)) for rank, status, at in map(str.split, lines)}


def in_words(status: int | None) -> str:
    """Says how a process ended, e.g. ``killed by SIGSEGV``."""
    if status is None:
        return "died"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def sentence(ranks: Sequence[int], status: int | None) -> str:
    """Says which ranks ended that way, and what may have ended them."""
    who = ranks_in_words(ranks)
    if status is None:
        return f"{who} died"
    if status >= 0:
        return f"{who} {in_words(status)} before the end of {_their(ranks)} script"
    hint = next((hint for number, hint in _HINTS.items() if number == -status), "")
    return f"{who} {'was' if len(ranks) == 1 else 'were'} {in_words(status)}{hint}"


def _their(ranks: Sequence[int]) -> str:
    return "its" if len(ranks) == 1 else "their"
