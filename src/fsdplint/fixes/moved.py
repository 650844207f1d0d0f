"""Where what stands in a text before edits stands in the one after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit

# The kind of a node, and where it starts and ends.
Place = tuple[type, int, int]


@dataclass(frozen=True, slots=True)
class Moved:
    """Places in ``old``, by edits that are in order and apart, in ``new``."""

    old: str
    new: str
    edits: Sequence[Edit]

    def place(self, place: Place) -> Place | None:
        """The new place, None if an edit is in or at it."""
        kind, start, end = place
        if any(e.span.start <= end and start <= e.span.end for e in self.edits):
            return None
        shift = self._shift(start)
        return kind, start + shift, end + shift

    def head(self, head: Place) -> Place | None:
        """The new place of a block's head, None if an edit is in it; at its ends one may be."""
        kind, start, end = head
        if any(e.span.start < end and start < e.span.end for e in self.edits):
            return None
        shift = self._shift(start)
        return kind, start + shift, end + shift

    def indented(self, place: Place) -> bool:
        """Whether the line that a statement is on is indented by something else."""
        _, start, _ = place
        return _indentation(self.old, start) != _indentation(self.new, start + self._shift(start))

    def _shift(self, offset: int) -> int:
        above = (e for e in self.edits if e.span.end <= offset)
        return sum(len(e.text) - (e.span.end - e.span.start) for e in above)


def _indentation(text: str, offset: int) -> str:
    above = NEWLINE.split(text[:offset])[-1]
    return above[: len(above) - len(above.lstrip())]
