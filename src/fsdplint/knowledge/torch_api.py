"""Since when PyTorch has the public names of its distributed packages.

Source: `torch_api.csv`, which `scripts/drift.py` reads off the wheels from torch 2.4 on. What it
says of a name's first release holds on torch 2.6, 2.13 and 2.15, imported name by name; a name that
it calls gone may be there, without a definition in Python.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fsdplint.knowledge.torch_range import Release

_TABLE = Path(__file__).with_name("torch_api.csv")


@cache
def first_releases() -> Mapping[str, Release]:
    """Return the first release that has a name, or something in a module, from torch 2.4 on."""
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Release] = {}
    for row in rows:
        major, minor, micro = map(int, row["first"].split("."))
        first = (major, minor, micro)
        name = row["name"]
        while name.count(".") > 1:  # the modules that it is in, too
            found[name] = min(first, found.get(name, first))
            name = name.rpartition(".")[0]
    return found
