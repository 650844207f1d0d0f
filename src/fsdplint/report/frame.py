"""Code frames: lines of source with carets under what is wrong and dashes under its causes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fsdplint.finding import Span
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import COMMAND
from fsdplint.report.places import Place, place, shown
from fsdplint.report.style import Style

_LINE_WIDTH = 120
_LEAD = 30
_TAB = "    "


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to draw, with a few words beside it."""

    span: Span
    label: str
    primary: bool


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A mark's first line: where it is, which characters of it, and how it is drawn."""

    path: str
    number: int
    where: Place
    length: int
    mark: Mark


def gutter_width(outcome: Outcome, marks: Sequence[Mark]) -> int:
    """Return how wide the largest line number is."""
    return max(len(str(drawn.where.line)) for drawn in _drawn(outcome, marks))


def frames(outcome: Outcome, marks: Sequence[Mark], style: Style) -> Iterator[str]:
    """Yield one frame for each file, or notebook cell, with marks; the first mark's first.

    A frame that is not the first mark's begins with an arrow and its place.
    """
    margin = " " * gutter_width(outcome, marks)
    bar = f"{margin} {style('|', 'gutter')}"
    groups = _grouped(_drawn(outcome, marks))
    for index, group in enumerate(groups):
        if index:
            where = f"{shown(outcome, group[0].path)}:{group[0].where}"
            yield f"{margin}{style('-->', 'gutter')} {where}"
        yield bar
        yield from _frame(outcome, group, margin, style)
    yield bar


def _drawn(outcome: Outcome, marks: Sequence[Mark]) -> list[_Drawn]:
    drawn = []
    for mark in marks:
        source = outcome.sources[mark.span.path]
        number, column = source.position(mark.span.start)
        on_line = len(source.line(number).rstrip()) - column + 1
        length = max(1, min(mark.span.end - mark.span.start, on_line))
        where = place(outcome, mark.span.path, mark.span.start)
        drawn.append(_Drawn(mark.span.path, number, where, length, mark))
    return drawn


def _grouped(drawn: Sequence[_Drawn]) -> list[list[_Drawn]]:
    groups: dict[tuple[str, int | None], list[_Drawn]] = {}
    for one in drawn:
        groups.setdefault((one.path, one.where.cell), []).append(one)
    return list(groups.values())


def _frame(outcome: Outcome, group: Sequence[_Drawn], margin: str, style: Style) -> Iterator[str]:
    """Yield the marked lines of one file in order; "..." stands for two or more lines between."""
    source = outcome.sources[group[0].path]
    previous: int | None = None
    ordered = sorted(group, key=lambda one: (one.number, not one.mark.primary, one.where.column))
    for number, on_line in groupby(ordered, key=lambda one: one.number):
        marked = list(on_line)
        shift = marked[0].where.line - number
        if previous is not None and number == previous + 2:
            yield from _line(source.line(number - 1), number - 1 + shift, (), margin, style)
        elif previous is not None and number > previous + 2:
            yield style("...", "gutter")
        yield from _line(source.line(number), number + shift, marked, margin, style)
        previous = number


def _line(
    text: str, number: int, marked: Sequence[_Drawn], margin: str, style: Style
) -> Iterator[str]:
    """Yield a line of source, cut if it is long, and a line below it for each mark."""
    cells = [_printable(character) for character in text.rstrip()]
    for command in COMMAND.finditer(text):
        cells[command.start()] = r"\x23"
    first, last = _window(cells, marked[0].where.column - 1 if marked else 0)
    code = "".join(cells[first:last])
    code = ("…" if first else "") + code + ("…" if last < len(cells) else "")
    bar = style("|", "gutter")
    yield f"{style(str(number).rjust(len(margin)), 'gutter')} {bar} {code}".rstrip()
    for one in marked:
        begin = one.where.column - 1
        start = min(max(begin, first), last)
        end = max(start + 1, min(begin + one.length, last))
        indent = _width("".join(cells[first:start])) + bool(first)
        width = max(1, _width("".join(cells[start:end])))
        role = "error" if one.mark.primary else "secondary"
        drawn = style(("^" if one.mark.primary else "-") * width, role)
        label = f" {style(' '.join(one.mark.label.split()), role)}" if one.mark.label else ""
        yield f"{margin} {bar} {' ' * indent}{drawn}{label}"


def _window(cells: Sequence[str], focus: int) -> tuple[int, int]:
    """Return which cells to show so that a long line stays readable where the focus is."""
    if _width("".join(cells)) <= _LINE_WIDTH:
        return 0, len(cells)
    first = max(0, min(focus, len(cells)) - _LEAD)
    last, width = first, 0
    while last < len(cells) and (width := width + _width(cells[last])) <= _LINE_WIDTH:
        last += 1
    return first, last


def _printable(character: str) -> str:
    """Return ``character``, escaped if it would move the cursor or reverse the text."""
    if character == "\t":
        return _TAB
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return ascii(character)[1:-1]


def _width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
