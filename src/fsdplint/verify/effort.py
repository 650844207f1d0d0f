"""How much processor time a rank and what it started have used: tells waiting from working."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_STATE, _GROUP, _USER, _SYSTEM = 0, 2, 11, 12
"""Fields of /proc/PID/stat behind the command's name, from 0: proc(5)."""


def seconds(groups: Collection[int]) -> dict[int, float]:
    """Returns, per process group, the processor seconds of its living processes, and infinity
    for one that waits for a disk.

    It is empty where the system has no /proc: nobody can be called idle there.
    """
    found = dict.fromkeys(groups, 0.0)
    if not (_PROC / "self" / "stat").exists():
        return {}
    for file in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            fields = file.read_text("ascii", errors="replace").rpartition(") ")[2].split()
            group = int(fields[_GROUP])
            if group in found:
                ticks = int(fields[_USER]) + int(fields[_SYSTEM])
                found[group] += ticks / os.sysconf("SC_CLK_TCK")
                if fields[_STATE] == "D":
                    found[group] = math.inf
    return found
