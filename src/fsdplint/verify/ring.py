"""A rank's log of collectives, written through to the disk before each one starts.

gloo ends the whole process on a size mismatch, so nothing kept in Python alone would survive.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from fsdplint.verify.events import Place

_ISSUED, _DONE = "+", "-"


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective as one rank issued it.

    Attributes:
        group: the ranks of its process group, e.g. ``0,1``, with the group's number behind a
            slash, since two groups of the same ranks are apart.
        number: counts the collectives of this rank in this group, from 0.
        size: bytes of this rank's input.
        step: optimizer steps done before it.
        done: the call returned (on CUDA: it was queued).
    """

    group: str
    number: int
    operation: str
    shape: tuple[int, ...]
    size: int
    step: int
    place: Place | None
    done: bool
    time: float


class Ring:
    """The writer's side; one a rank."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def issue(self, record: tuple[object, ...]) -> None:
        """Notes that a collective starts: the fields of `Collective` but the place and `done`."""
        os.write(self._file, f"{_ISSUED}{json.dumps(record)}\n".encode())

    def done(self) -> None:
        """Notes that the innermost collective that is not done has returned."""
        os.write(self._file, f"{_DONE}\n".encode())


def read(path: Path) -> list[Collective]:
    """Returns what a rank issued, in order; a line cut short is left out."""
    found: list[Collective] = []
    open_ones: list[int] = []
    text = path.read_text("utf-8") if path.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.startswith(_DONE) and open_ones:
            index = open_ones.pop()
            found[index] = _finished(found[index])
        elif line.startswith(_ISSUED) and line.endswith("\n"):
            group, number, operation, shape, size, step, place, time = json.loads(line[1:])
            open_ones.append(len(found))
            where = Place(*place) if place else None
            found.append(
                Collective(group, number, operation, tuple(shape), size, step, where, False, time)
            )
    return found


def _finished(c: Collective) -> Collective:
    return Collective(
        c.group, c.number, c.operation, c.shape, c.size, c.step, c.place, True, c.time
    )
