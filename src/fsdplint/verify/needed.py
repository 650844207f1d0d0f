"""What `verify` needs that `check` does not: PyTorch, looked for without importing it."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

OLDEST = (2, 6)
_INSTALL = "pip install 'fsdplint[verify]'"


def missing() -> str:
    """Returns one sentence on what to install; empty where all is there."""
    if find_spec("torch") is None:
        return f"verify runs the script and needs PyTorch: {_INSTALL}"
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:  # built in place: its rank will tell
        return ""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"verify needs PyTorch {oldest} or newer, and this is {found}: {_INSTALL}"
    return ""
