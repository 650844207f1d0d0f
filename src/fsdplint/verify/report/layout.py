"""Lines that fit a terminal: wrapped paragraphs and aligned columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence


def printable(text: str) -> str:
    """``text`` without anything that would move the cursor or change the terminal."""
    return "".join(c if c.isprintable() or c in "\t\n" else ascii(c)[1:-1] for c in text)


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """``text`` in lines of ``width`` columns after ``first``, later ones after ``rest``.

    Words that are longer than a line, such as paths, stay whole.
    """
    rest = " " * len(first) if rest is None else rest
    return textwrap.wrap(
        printable(text),
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def columns(
    rows: Sequence[Sequence[str]], right: str, width: int, indent: str = "  "
) -> Iterator[str]:
    """Yields the rows as a table; the first column is cut where the table is too wide.

    Args:
        right: per column ``>`` where it is aligned to the right, else ``<``.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    spare = width - len(indent) - sum(widths) - 2 * (len(widths) - 1)
    if spare < 0:
        widths[0] = max(12, widths[0] + spare)
    for row in rows:
        cells = [f"{_cut(c, w):{side}{w}}" for c, side, w in zip(row, right, widths, strict=True)]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
