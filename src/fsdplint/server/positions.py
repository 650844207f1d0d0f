"""Offsets into a text, and the positions that the protocol has for them.

A position is a line and a count of code units in it. Client and server agree on the units.
"""

from __future__ import annotations

from lsprotocol import types

from fsdplint.files.file import SourceFile

# An encoding without a byte order mark, and the bytes of one of its units.
_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def position(source: SourceFile, offset: int, encoding: str) -> types.Position:
    """Return the position of ``offset`` in ``source``."""
    line, column = source.position(offset)
    return types.Position(line - 1, _units(source.line(line)[: column - 1], encoding))


def range_(source: SourceFile, start: int, end: int, encoding: str) -> types.Range:
    """Return the range of the half-open offsets ``start`` to ``end``."""
    return types.Range(position(source, start, encoding), position(source, end, encoding))


def offset(source: SourceFile, place: types.Position, encoding: str) -> int:
    """Return the offset of a position, which is clamped to its line and to the text."""
    start = source.offset(place.line + 1, 1)
    if place.line + 1 > source.position(len(source.text))[0]:
        return start
    return start + _characters(source.line(place.line + 1), place.character, encoding)


def _units(text: str, encoding: str) -> int:
    if text.isascii():
        return len(text)
    codec, size = _CODECS[encoding]
    return len(text.encode(codec, "surrogatepass")) // size


def _characters(line: str, units: int, encoding: str) -> int:
    """Return how many characters of ``line`` its first ``units`` are."""
    if line.isascii():
        return min(units, len(line))
    codec, size = _CODECS[encoding]
    head = line.encode(codec, "surrogatepass")[: units * size]
    # A position inside a character means its start.
    return len(head.decode(codec, "ignore"))
