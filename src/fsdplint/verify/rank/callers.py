"""Whose call it is: a script's or a library's, or torch's own business."""

from __future__ import annotations

import sys
from types import FrameType


def torchs_own() -> bool:
    """Says whether the function that asks was called by torch's own code.

    Wrappers of the observer's on the way do not count.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _package(frame).startswith("fsdplint.verify.rank"):
        frame = frame.f_back
    return frame is not None and _package(frame).split(".")[0] == "torch"


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
