"""Which lines of watched files run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch._dynamo.eval_frame import skip_code

from fsdplint.verify.events import LinesRan
from fsdplint.verify.rank.recorder import Recorder

_Trace = Callable[[FrameType, str, Any], Any]


class Lines:
    """Notes each line of some files that this process runs; other files only cost their calls.

    Args:
        files: their paths, relative to the working directory.
    """

    def __init__(self, recorder: Recorder, files: Sequence[str]) -> None:
        self._recorder = recorder
        self._ran: dict[str, set[int]] = {path: set() for path in files}
        self._watched: dict[str, _Trace] = {}
        for path, lines in self._ran.items():
            trace, place = _noted(lines), recorder.root / path
            # A file has another name where a link leads to it.
            self._watched |= dict.fromkeys((str(place), str(place.resolve())), trace)

    def install(self) -> None:
        """Begin to watch, if there is a file to watch."""
        if not self._ran:
            return
        watched = self._watched

        def called(frame: FrameType, event: str, argument: Any) -> _Trace | None:
            trace = watched.get(frame.f_code.co_filename)
            return trace and trace(frame, event, argument)

        skip_code(called.__code__)
        threading.settrace(called)
        sys.settrace(called)

    def finish(self) -> None:
        """Write down what ran."""
        if not self._ran:
            return
        sys.settrace(None)
        for path, lines in self._ran.items():
            self._recorder.write(LinesRan(path, tuple(sorted(lines))))


def _noted(lines: set[int]) -> _Trace:
    """Return a trace function that adds to ``lines``; `torch.compile` is not to compile it."""
    add = lines.add

    def trace(frame: FrameType, event: str, _: Any) -> _Trace:
        if event == "line":
            add(frame.f_lineno)
        return trace

    skip_code(trace.__code__)
    return trace
