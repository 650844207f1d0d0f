"""The options that torchrun, `torch.distributed.launch` and `accelerate launch` know.

`scripts/launch_options.py` extracts the table from their parsers: torch 2.13, and for accelerate
what one of its releases from 0.26 to 1.15 knows. A test compares what is installed.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TORCHRUN = "torchrun"
LAUNCH = "launch"
ACCELERATE = "accelerate"
COMMANDS: Mapping[str, str] = {
    TORCHRUN: "torchrun",
    LAUNCH: "torch.distributed.launch",
    ACCELERATE: "accelerate launch",
}
"""By launcher, how users know it."""
MODULES: Mapping[str, str] = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": LAUNCH,
    "accelerate.commands.launch": ACCELERATE,
}
"""By module that `python -m` runs."""
PROGRAMS: Mapping[str, str] = {"torchrun": TORCHRUN, "accelerate-launch": ACCELERATE}
"""By name of the program, where it has no command of its own."""
DEPRECATED_MODULE = "torch.distributed.launch"
MODULE = "torch.distributed.run"
# Options of which a launcher takes one. Source: torch 2.13, `config_from_args` in
# `distributed/run.py`; accelerate 1.15, `_validate_launch_command`. The page's proof runs both.
EXCLUSIVE: Mapping[str, tuple[str, ...]] = {
    TORCHRUN: ("no_python", "module"),
    LAUNCH: ("no_python", "module"),
    ACCELERATE: ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp"),
}

_SHORT = {"m": "module", "r": "redirects", "t": "tee", "h": "help", "q": "quiet"}
_TABLE = Path(__file__).with_name("launch_options.csv")


@cache
def options(launcher: str) -> Mapping[str, bool]:
    """Return the options of a launcher, each with whether it takes a value."""
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["launcher"] == launcher]
    return {row["option"]: row["takes_value"] == "1" for row in rows}


def takes_prefixes(launcher: str) -> bool:
    """Return whether the launcher's parser takes the beginning of an option for it."""
    return launcher != ACCELERATE


def plain(option: str) -> str:
    """Return the name of an option, however it is spelled: `nproc_per_node`."""
    name = option.lstrip("-").replace("-", "_")
    return _SHORT.get(name, name)
