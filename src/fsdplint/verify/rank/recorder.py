"""Where a rank writes what the probes see, whose code is whose, and the guard of all probes."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

from fsdplint.verify.events import Event, Place, ProbeFailed
from fsdplint.verify.journal import encode
from fsdplint.verify.request import SURROUNDINGS, Request

P = ParamSpec("P")
R = TypeVar("R")


class Unobservable(Exception):
    """What a probe looks at has no values; the message says why."""


_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


class Recorder:
    """Writes this rank's events, each one through to the disk; also knows whose code is whose.

    Args:
        folder: the records' folder.
        root: the scratch copy of the working directory.
    """

    def __init__(self, folder: Path, root: Path, rank: int, request: Request) -> None:
        self.folder, self.root, self.rank, self.request = folder, root, rank, request
        self._file = os.open(
            folder / f"{rank}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
        )
        self._pid = os.getpid()
        self._failed: set[str] = set()
        self._around = f"{folder / SURROUNDINGS}{os.sep}"
        self._owned: dict[str, bool] = {}
        self._places: dict[tuple[str, int, str], Place] = {}

    def write(self, event: Event) -> None:
        """Append one event, unless this is a child process that the script has forked."""
        if self.is_rank():
            os.write(self._file, f"{encode(event)}\n".encode())

    def is_rank(self) -> bool:
        """Return whether this process is the rank itself, not a forked child of it."""
        return os.getpid() == self._pid

    def probe(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Make a probe's body harmless: what it cannot read is noted once and never raised."""

        def guard(body: Callable[P, R]) -> Callable[P, R | None]:
            @functools.wraps(body)
            def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
                try:
                    return body(*args, **kwargs)
                except Exception as error:  # a probe must never change how the script ends
                    if name not in self._failed:
                        self._failed.add(name)
                        known = isinstance(error, Unobservable)
                        kind = "" if known else f"{type(error).__name__}: "
                        self.write(ProbeFailed(name, f"{kind}{error}"))
                    return None

            return guarded

        return guard

    def place(self, frame: FrameType | None = None) -> Place | None:
        """Return the innermost line of the user's code on the stack, or None."""
        walk: FrameType | None = frame or sys._getframe(1)
        while walk is not None:
            path = walk.f_code.co_filename
            mine = self._owned.get(path)  # every collective asks for all frames of its stack
            if self.owns(path) if mine is None else mine:
                return self.line(path, walk.f_lineno, walk.f_code.co_name)
            walk = walk.f_back
        return None

    def owns(self, path: str) -> bool:
        """True if a file is the user's own: of the working directory, or from beside it."""
        if path not in self._owned:
            self._owned[path] = (
                path.startswith(self._around)
                and "site-packages" not in path
                and not path.startswith(_PACKAGE)
            )
        return self._owned[path]

    def line(self, path: str, number: int, function: str) -> Place:
        """Return a place with a path relative to the working directory where it lies there."""
        key = path, number, function
        if key not in self._places:
            mine = path.startswith(self._around)
            shown = os.path.relpath(path, self.root) if mine else path
            self._places[key] = Place(shown, number, function)
        return self._places[key]


def called_by_torch() -> bool:
    """True if torch's own code called the function that asks, the observer's wrappers aside."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _package(frame).startswith("fsdplint.verify.rank"):
        frame = frame.f_back
    return frame is not None and _package(frame).split(".")[0] == "torch"


def prepares_state() -> bool:
    """True if an optimizer steps only to make its state, as DCP lets it.

    Source: ``torch.distributed.checkpoint.state_dict._init_optim_state`` (torch 2.6-2.15).
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_init_optim_state":
        frame = frame.f_back
    return frame is not None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
