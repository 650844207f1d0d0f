"""Programs made by crossing shapes: one template, and for each slot in it the ways to write it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

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
        entry: the file that is run.
    """

    name: str
    files: Mapping[str, str]
    slots: Mapping[str, Mapping[str, Shape]]
    entry: str = "train.py"
    arguments: tuple[Arguments, ...] = ((),)

    def programs(self) -> Iterator[Program]:
        """Yield every combination of shapes."""
        for chosen in product(*(shapes.items() for shapes in self.slots.values())):
            names = "-".join(name for name, _ in chosen)
            places: dict[str, str] = {}
            for slot, (_, shape) in zip(self.slots, chosen, strict=True):
                places.update(_places(slot, shape))
            files = {path: _filled(text, places) for path, text in self.files.items()}
            files = {path: text for path, text in files.items() if text.strip()}
            yield Program(f"families/{self.name}/{names}", files, self.entry, self.arguments)


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
