"""Lines that fit a terminal: wrapped paragraphs and aligned columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from fsdplint.process.terminal import printable

_KEPT_TOGETHER = re.compile(r"(?<=\d) (?=%|[KMGT]?i?B\b)|(?<=\u00d7) (?=\d)|(?<=\bexit) (?=\d)")
_NARROWEST = 8
_TIE = "\N{NO-BREAK SPACE}"


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """``text`` in lines of ``width`` columns after ``first``, later ones after ``rest``.

    Words that are longer than a line, such as paths, stay whole.
    """
    rest = " " * len(first) if rest is None else rest
    lines = textwrap.wrap(
        _KEPT_TOGETHER.sub(_TIE, printable(text, "\t\n")),
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIE, " ") for line in lines] or [first.rstrip()]


def columns(
    rows: Sequence[Sequence[str]], right: str, width: int, indent: str = "  "
) -> Iterator[str]:
    """Yields the rows as a table; texts are cut where the table is too wide.

    Args:
        right: per column ``>`` where it is aligned to the right, else ``<``.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = _shrunk(
        [max(map(len, column)) for column in zip(*rows, strict=True)],
        [at for at, side in enumerate(right) if side == "<"],
        width - len(indent) - 2 * (len(right) - 1),
    )
    for row in rows:
        cells = [f"{_cut(c, w):{side}{w}}" for c, side, w in zip(row, right, widths, strict=True)]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _shrunk(widths: Sequence[int], texts: Sequence[int], room: int) -> list[int]:
    """The widths with as much taken from the widest texts as the room asks for; figures stay."""
    widths = list(widths)
    for _ in range(sum(widths) - room):
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= widths[widest] > _NARROWEST
    return widths


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
