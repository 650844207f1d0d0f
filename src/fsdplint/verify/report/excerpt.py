"""Source lines beside a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, load
from fsdplint.finding import Span
from fsdplint.outcome import Outcome
from fsdplint.report.frame import Mark, frames
from fsdplint.report.style import Style
from fsdplint.verify.events import Place

_AROUND = 2


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of one file around some places: their numbers and texts, without shared indentation."""

    places: tuple[Place, ...]
    lines: tuple[tuple[int, str], ...]


def excerpts(places: Sequence[Place], directory: Path) -> Iterator[Excerpt]:
    """Yield the lines at the places that can be read; places near each other share an excerpt."""
    near: list[tuple[SourceFile, list[Place]]] = []
    for place, source in _sources(places, directory):
        for _, group in near:
            if group[0].path == place.path and any(
                abs(p.line - place.line) <= 2 * _AROUND for p in group
            ):
                group.append(place)
                break
        else:
            near.append((source, [place]))
    for source, group in near:
        yield Excerpt(tuple(group), tuple(_around(source, group)))


def _around(source: SourceFile, places: Sequence[Place]) -> Iterator[tuple[int, str]]:
    """Yield the lines around places of one file, or of one cell."""
    before, count = _extent(source, places[0].cell)
    lines = [place.line for place in places]
    first, last = max(1, min(lines) - _AROUND), min(count, max(lines) + _AROUND)
    texts = dedent("\n".join(source.line(before + number) for number in range(first, last + 1)))
    yield from enumerate(texts.split("\n"), first)


def _extent(source: SourceFile, cell: int | None) -> tuple[int, int]:
    """Return how many lines the text has before a cell, and in it; or before and in a file."""
    if cell is None or source.notebook is None:
        return 0, source.position(len(source.text.rstrip()))[0]
    before = source.notebook.lines_before(cell)
    return before, source.notebook.lines_before(cell + 1) - before


def stored_line(place: Place, directory: Path) -> int:
    """Return the line of a place in its file as it is stored: of a notebook, in its JSON."""
    if place.cell is None:
        return place.line
    for _, source in _sources([place], directory):
        start = source.offset(_line(source, place), 1)
        return source.document.position(source.in_document(start, start)[0])[0]
    return 1


def _line(source: SourceFile, place: Place) -> int:
    return _extent(source, place.cell)[0] + place.line


def framed(places: Sequence[Place], directory: Path, style: Style) -> Iterator[str]:
    """Yield the places as frames for a terminal, the first as the one to look at first."""
    marks: list[Mark] = []
    sources: dict[str, SourceFile] = {}
    for place, source in _sources(places, directory):
        number = _line(source, place)
        line = source.line(number)
        start = source.offset(number, len(line) - len(line.lstrip()) + 1)
        end = source.offset(number, len(line.rstrip()) + 1)
        sources[source.path] = source
        marks.append(Mark(Span(source.path, start, end), "", primary=not marks))
    if marks:
        outcome = Outcome((), sources, base=directory.as_posix())
        yield from frames(outcome, marks, style)


def _sources(places: Sequence[Place], directory: Path) -> Iterator[tuple[Place, SourceFile]]:
    """Yield the files that can be read; a file may have changed since the script began."""
    loaded: dict[str, SourceFile | None] = {}
    for place in places:
        if place.file not in loaded:
            loaded[place.file] = _load(directory / place.file)
        source = loaded[place.file]
        if source is not None and place.line <= _extent(source, place.cell)[1]:
            yield place, source


def _load(path: Path) -> SourceFile | None:
    try:
        return load(path)
    except SourceError:
        return None
