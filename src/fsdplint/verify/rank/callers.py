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


def prepares_state() -> bool:
    """Says whether an optimizer steps only to make its state, as DCP lets it.

    Source: ``torch.distributed.checkpoint.state_dict._init_optim_state`` (torch 2.6-2.15).
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_init_optim_state":
            return True
        frame = frame.f_back
    return False


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
