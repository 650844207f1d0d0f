"""The names of the layers that the models of transformers are made of.

The table is extracted: `scripts/transformers_layers.py` reads the modeling files of each release.
A test compares it with the installed one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("transformers_layers.csv")
_KIND = re.compile(r"(?:(?:De|En)coder|Transformer|Text|Vision)*(?:Layer|Block|Stage)s?\Z")
# Classes of other packages whose names differ from those of transformers by case only: they are
# defined in llm-foundry and in vLLM.
_ELSEWHERE = frozenset({"MPTBlock", "PhiMoEDecoderLayer"})


@dataclass(frozen=True, slots=True)
class Misspelt:
    """A name that is evidently meant to be that of a layer.

    Attributes:
        name: that layer.
        is_sure: whether no model elsewhere has such a name: it has the name of a model of
            transformers in front, as transformers spells it.
    """

    name: str
    is_sure: bool


@cache
def _rows() -> tuple[tuple[str, str], ...]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        return tuple((row["name"], row["releases"]) for row in csv.DictReader(file))


@cache
def layers() -> frozenset[str]:
    """Return the names of the layers in all releases."""
    return frozenset(name for name, _ in _rows()[1:])


def releases() -> tuple[str, str]:
    """Return the first and the last release that was read."""
    every = _rows()[0][1].split()
    return every[0], every[-1]


@cache
def _spellings() -> dict[str, str]:
    """Return the layers by their names in small letters."""
    return {name.lower(): name for name in layers()}


@cache
def misspelt(name: str) -> Misspelt | None:
    """Return the layer that a name is evidently meant for, None if it is one or none is."""
    if name in layers() or name in _ELSEWHERE or not name.isidentifier():
        return None
    found = {m for each in (name, *_mended(name)) if (m := _spellings().get(each.lower()))}
    found |= {layer for layer in layers() if name in _mended(layer)} if not found else set()
    if len(found) != 1:
        return None
    (layer,) = found
    kind = _KIND.search(layer)
    model = layer[: kind.start()] if kind else layer
    return Misspelt(layer, len(model) > 1 and name.startswith(model) and _same(name, layer))


def _same(name: str, layer: str) -> bool:
    return name.lower() == layer.lower()


def _mended(name: str) -> Iterator[str]:
    """Yield a name without one small letter within a word, and with two neighbors exchanged."""
    for index in range(2, len(name) - 1):
        if name[index - 1 : index + 2].islower():
            yield name[:index] + name[index + 1 :]
            yield name[: index - 1] + name[index] + name[index - 1] + name[index + 1 :]
