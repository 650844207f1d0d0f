"""Where the characters of a JSON string are written in its document."""

from __future__ import annotations

import re

_STRING = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
# A character outside the basic plane may be written as a pair of escapes.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\.|.", re.DOTALL
)


def written(document: str, start: int, end: int) -> list[tuple[int, int]]:
    """The half-open offsets of each character of the string, or list of strings, at ``start``.

    Args:
        end: the offset after the value.
    """
    return [
        character.span()
        for string in _STRING.finditer(document, start, end)
        for character in _CHARACTER.finditer(document, string.start(1), string.end(1))
    ]
