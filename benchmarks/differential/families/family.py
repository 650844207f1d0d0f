"""Programs made by crossing shapes: one template, and for each slot in it the ways to write it.

Not every combination is made, but every pair of shapes occurs in one.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from random import Random

from benchmarks.differential.program import Arguments, Program

Shape = str | Mapping[str, str]
"""The code for a slot; where the slot has several places, the code for each."""

_LINE = re.compile(r"^([ \t]*)«([\w.]+)»[ \t]*$", re.MULTILINE)
_INLINE = re.compile(r"«([\w.]+)»")
_BLANK = re.compile(r"\n{4,}")


@dataclass(frozen=True, slots=True)
class Family:
    """A template of a program, and the shapes that are put into it.

    Attributes:
        files: text by path, with `«slot»` or `«slot.place»` where a shape goes.
        slots: for each slot its shapes, by a name.
        strength: how many shapes are combined in every way; 1 uses each shape once or more.
        entry: the file that is run.
    """

    name: str
    files: Mapping[str, str]
    slots: Mapping[str, Mapping[str, Shape]]
    entry: str = "train.py"
    arguments: tuple[Arguments, ...] = ((),)
    strength: int = 2

    def programs(self) -> Iterator[Program]:
        """Yield combinations of shapes, such that each pair of shapes is in one of them."""
        names = [list(shapes) for shapes in self.slots.values()]
        for chosen in _covering(names, min(self.strength, len(names))):
            places: dict[str, str] = {}
            for slot, name in zip(self.slots, chosen, strict=True):
                places.update(_places(slot, self.slots[slot][name]))
            files = {path: _filled(text, places) for path, text in self.files.items()}
            files = {path: text for path, text in files.items() if text.strip()}
            yield Program(
                f"families/{self.name}/{'-'.join(chosen)}", files, self.entry, self.arguments
            )


def _covering(names: Sequence[Sequence[str]], strength: int) -> Iterator[tuple[str, ...]]:
    """Yield combinations of names, one of each list, until so many of each have been in one."""
    left = list(product(*names))
    Random(0).shuffle(left)
    parts = {each: set(combinations(enumerate(each), strength)) for each in left}
    missing = set().union(*parts.values())
    while missing:
        best = max(left, key=lambda each: len(parts[each] & missing))
        missing -= parts[best]
        yield best


def _places(slot: str, shape: Shape) -> dict[str, str]:
    if isinstance(shape, str):
        return {slot: shape}
    return {f"{slot}.{place}": code for place, code in shape.items()}


def _filled(text: str, places: Mapping[str, str]) -> str:
    """Return a template with its slots filled; a shape may have slots of its own."""
    text = textwrap.dedent(text).strip("\n") + "\n"
    while _INLINE.search(text):
        text = _LINE.sub(lambda m: _block(places.get(m[2], ""), m[1]), text)
        text = _INLINE.sub(lambda m: places.get(m[1], ""), text)
    return _BLANK.sub("\n\n\n", text)


def _block(code: str, indent: str) -> str:
    return textwrap.indent(textwrap.dedent(code).strip("\n"), indent)
