"""What to check to have every kind of report: the files, and the rules found in them."""

from __future__ import annotations

import json
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "broken"
# Those that hold no two fixes of one place, of which suggestions can only be taken in turn.
SHOWN = (
    "direct_forward.py",
    "no_sync_under_fsdp2.py",
    "only_root_sharded.py",
    "optimizer_before_sharding/*.py",
    "sharded_state_saved.py",
)

SHARD = "from torch.distributed.fsdp import fully_shard\n\n\ndef shard(m):\n    fully_shard(m)\n"
TRAIN = """\
import torch
from lib.shard import shard

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
shard(model)
if model:
\tname = "🚀é"; model.forward(torch.ones(8)); print("🚀", name)
"""
NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": TRAIN.splitlines(keepends=True),
        }
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
REDUNDANT = "x = 1  # fsdplint: ignore[direct-forward]\n"

Files = dict[str, bytes]
CASES: dict[str, tuple[Files, list[str]]] = {
    "clean": ({"clean.py": b"x = 1\n"}, []),
    "across files": (
        {"pyproject.toml": b"", "lib/shard.py": SHARD.encode(), "train.py": TRAIN.encode()},
        ["FSD301", "FSD302"],
    ),
    "unusual text": (
        {
            "pyproject.toml": b"",
            "lib/shard.py": SHARD.encode(),
            "é 🚀#.py": b"\xef\xbb\xbf" + TRAIN.replace("\n", "\r\n").encode(),
            "train.ipynb": json.dumps(NOTEBOOK, indent=1).encode(),
        },
        ["FSD301", "FSD302"] * 2,
    ),
    "unparsable": ({"broken.py": b"x = (\n", "other.py": REDUNDANT.encode()}, ["FSD002"]),
    "examples": (
        {
            str(file.relative_to(EXAMPLES)): file.read_bytes()
            for pattern in SHOWN
            for file in sorted(EXAMPLES.glob(pattern))
        },
        ["FSD302", "FSD302", "FSD303", "FSD201", "FSD301", "FSD501"],
    ),
}


def write(directory: Path, files: Files) -> None:
    """Write ``files`` below ``directory``."""
    for file, content in files.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_bytes(content)
