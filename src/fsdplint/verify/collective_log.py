"""A rank's log of collectives, written through to the disk before each one starts.

gloo ends the whole process on a size mismatch, so nothing kept in Python alone would survive. A
line is a few numbers; each text has its own line once, and lines refer to it by position.
"""

from __future__ import annotations

import enum
import json
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdplint.verify.events import Place
from fsdplint.verify.journal import Tail

_TEXT, _ISSUED = "=", "+"
_NOWHERE = -1
PEER_TO_PEER = frozenset({"send", "recv"})


class State(enum.Enum):
    """How far a collective has come in its rank; the values are those in the log.

    ISSUED: the call has begun. QUEUED: it returned, and nobody has waited for the result.
    WAITING: someone waits for the result. DONE: it is there (on CUDA: queued on the stream).
    RAISED: the call or the wait ended with an exception.
    """

    ISSUED = "+"
    QUEUED = "."
    WAITING = "~"
    DONE = "-"
    RAISED = "!"


BLOCKING = frozenset({State.ISSUED, State.WAITING, State.RAISED})
"""States in which the rank's thread waits, or waited, for the other ranks."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective as one rank issued it.

    Attributes:
        group: the ranks of its process group, e.g. ``0,1``, with the group's name behind a
            slash, since two groups of the same ranks are apart; no ranks mean all.
        number: counts the collectives of this rank in this group, from 0; sends and receives
            are counted apart.
        shape: of this rank's input; of several tensors the number of all elements.
        size: bytes of this rank's input.
        step: optimizer steps done before it.
        time: seconds on a clock that all ranks of a node share.
    """

    group: str
    number: int
    operation: str
    shape: tuple[int, ...]
    size: int
    step: int
    place: Place | None
    state: State
    time: float

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of its group; empty for all."""
        ranks = self.group.partition("/")[0]
        return tuple(map(int, ranks.split(","))) if ranks else ()

    @property
    def done(self) -> bool:
        """True if its result is there."""
        return self.state is State.DONE


class Ring:
    """The writer's side; one a rank, for all its threads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self._texts: dict[object, int] = {}
        self._numbers: dict[tuple[int, bool], int] = defaultdict(int)
        self._issued = 0

    def issue(
        self,
        group: str,
        operation: str,
        shape: tuple[int, ...],
        size: int,
        step: int,
        place: Place | None,
    ) -> int:
        """Note that a collective starts; return what `note` knows it by."""
        with self._lock:
            new: list[str] = []
            g, o = self._number(group, new), self._number(operation, new)
            p = _NOWHERE if place is None else self._number(place, new)
            key = g, operation in PEER_TO_PEER
            number, index = self._numbers[key], self._issued
            self._numbers[key], self._issued = number + 1, index + 1
            dimensions = " ".join(map(str, shape))
            line = f"+{g} {number} {o} {size} {step} {p} {time.monotonic_ns()} {dimensions}\n"
            os.write(self._file, "".join((*new, line)).encode())
        return index

    def note(self, index: int, state: State) -> None:
        """Note how far a collective has come."""
        os.write(self._file, f"{state.value}{index}\n".encode())

    def _number(self, text: str | Place, new: list[str]) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            value = text if isinstance(text, str) else (text.path, text.line, text.function)
            new.append(f"{_TEXT}{json.dumps(value)}\n")
        return number


class Reader:
    """The reader's side, which may follow a rank that still runs."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._texts: list[Any] = []
        self._issued: list[list[int]] = []
        self._states: list[State] = []
        self._built: list[Collective] | None = []

    def read(self) -> bool:
        """Take in what was written since the last call; true if there was anything."""
        lines = self._tail.lines()
        for line in lines:
            kind, rest = line[0], line[1:]
            if kind == _TEXT:
                value = json.loads(rest)
                self._texts.append(value if isinstance(value, str) else Place(*value))
            elif kind == _ISSUED:
                self._issued.append(list(map(int, rest.split())))
                self._states.append(State.ISSUED)
            else:
                self._states[int(rest)] = State(kind)
        if lines:
            self._built = None
        return bool(lines)

    @property
    def step(self) -> int:
        """Optimizer steps done before the latest collective."""
        return self._issued[-1][4] if self._issued else 0

    def collectives(self) -> list[Collective]:
        """Return what the rank has issued so far, in order."""
        if self._built is None:
            self._built = list(map(self._collective, self._issued, self._states))
        return self._built

    def _collective(self, record: list[int], state: State) -> Collective:
        """Build a collective from a line's numbers and the texts they refer to."""
        group, number, operation, size, step, place, clock, *shape = record
        return Collective(
            self._texts[group],
            number,
            self._texts[operation],
            tuple(shape),
            size,
            step,
            None if place == _NOWHERE else self._texts[place],
            state,
            clock / 1e9,
        )


def read(path: Path) -> list[Collective]:
    """Return what a rank issued, in order; a line cut short is left out."""
    reader = Reader(path)
    reader.read()
    return reader.collectives()
