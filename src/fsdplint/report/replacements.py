"""Edits as replacements in files as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fsdplint.files.file import SourceFile
from fsdplint.finding import Edit
from fsdplint.fixes.edits import apply


class Replacement(NamedTuple):
    """Text that replaces the range between two offsets in a file's document."""

    start: int
    end: int
    text: str


def replacements(source: SourceFile, edits: Sequence[Edit]) -> list[Replacement]:
    """Return a replacement for each of ``edits`` of ``source``; in a notebook, one for all."""
    if source.notebook is not None:
        return [joined(source, edits)]
    return [Replacement(edit.span.start, edit.span.end, edit.text) for edit in edits]


def joined(source: SourceFile, edits: Sequence[Edit]) -> Replacement:
    """Return one replacement that has the effect of all ``edits``, which are of ``source``."""
    fixed = apply(source.text, edits)
    if source.notebook is not None:
        # An edit may take JSON around it along.
        return _difference(source.notebook.document, source.notebook.replace(source.text, fixed))
    first = min(edit.span.start for edit in edits)
    last = max(edit.span.end for edit in edits)
    return Replacement(first, last, fixed[first : len(fixed) - (len(source.text) - last)])


def _difference(old: str, new: str) -> Replacement:
    shortest = min(len(old), len(new))
    head = _equal(shortest, lambda size: old[:size] == new[:size])
    tail = _equal(shortest - head, lambda size: old[len(old) - size :] == new[len(new) - size :])
    return Replacement(head, len(old) - tail, new[head : len(new) - tail])


def _equal(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest size up to ``limit`` for which ``holds`` is true, by bisection."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
