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
        for other, group in near:
            if other is source and any(abs(p.line - place.line) <= 2 * _AROUND for p in group):
                group.append(place)
                break
        else:
            near.append((source, [place]))
    for source, group in near:
        yield Excerpt(tuple(group), tuple(_around(source, [place.line for place in group])))


def _around(source: SourceFile, lines: Sequence[int]) -> Iterator[tuple[int, str]]:
    count = source.position(len(source.text.rstrip()))[0]
    first, last = max(1, min(lines) - _AROUND), min(count, max(lines) + _AROUND)
    texts = dedent("\n".join(source.line(number) for number in range(first, last + 1)))
    yield from enumerate(texts.split("\n"), first)


def framed(places: Sequence[Place], directory: Path, style: Style) -> Iterator[str]:
    """Yield the places as frames for a terminal, the first as the one to look at first."""
    marks: list[Mark] = []
    sources: dict[str, SourceFile] = {}
    for place, source in _sources(places, directory):
        line = source.line(place.line)
        start = source.offset(place.line, len(line) - len(line.lstrip()) + 1)
        end = source.offset(place.line, len(line.rstrip()) + 1)
        sources[source.path] = source
        marks.append(Mark(Span(source.path, start, end), "", primary=not marks))
    if marks:
        outcome = Outcome((), sources, base=directory.as_posix())
        yield from frames(outcome, marks, style)


def _sources(places: Sequence[Place], directory: Path) -> Iterator[tuple[Place, SourceFile]]:
    """Yield the files that can be read; a file may have changed since the script began."""
    loaded: dict[str, SourceFile | None] = {}
    for place in places:
        if place.path not in loaded:
            loaded[place.path] = _load(directory / place.path)
        source = loaded[place.path]
        if source is not None and place.line <= source.position(len(source.text))[0]:
            yield place, source


def _load(path: Path) -> SourceFile | None:
    try:
        return load(path)
    except SourceError:
        return None
