"""Where something is, as shown to people: a path, a notebook's cell, a line and a column."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.files.decoding import SourceError
from fsdplint.finding import Span
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable, shown_path


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A 1-based line and column, in characters; in a notebook the line is the cell's."""

    cell: int | None
    line: int
    column: int

    def __str__(self) -> str:
        cell = f"cell {self.cell}:" if self.cell is not None else ""
        return f"{cell}{self.line}:{self.column}"


def place(outcome: Outcome, path: str, offset: int) -> Place:
    """The place of ``offset`` in the file at ``path``."""
    source = outcome.sources[path]
    line, column = source.position(offset)
    located = source.cell(line)
    return Place(*located, column) if located else Place(None, line, column)


def in_document(outcome: Outcome, span: Span) -> tuple[tuple[int, int], tuple[int, int]]:
    """The line and column where ``span`` starts and ends in the file as it is stored."""
    source = outcome.sources[span.path]
    start, end = source.in_document(span.start, span.end)
    return source.document.position(start), source.document.position(end)


def relative(outcome: Outcome, path: str) -> str:
    """``path`` from where the run started, if it lies there."""
    return path.removeprefix(outcome.base.rstrip("/") + "/")


def shown(outcome: Outcome, path: str) -> str:
    """The relative ``path`` fit to print: what no terminal shows as a character is escaped."""
    return shown_path(relative(outcome, path))


def located(outcome: Outcome, span: Span) -> str:
    """The shown path and place of a span's start, as terminals and editors make a link of."""
    return f"{shown(outcome, span.path)}:{place(outcome, span.path, span.start)}"


def told(outcome: Outcome, failure: SourceError) -> str:
    """What could not be looked at, and why, in one line fit to print."""
    return f"{shown(outcome, failure.path)}: {printable(failure.reason)}"
