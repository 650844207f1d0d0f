"""Places for people: a path, a notebook's cell, a line and a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fsdplint.files.decoding import SourceError
from fsdplint.finding import TOP_LEVEL, EarlyStop, Span
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable, shown_path

# Early stops that are listed; more of them would hide the report.
_MAX_LINES = 5


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
    """Return the place of ``offset`` in the file at ``path``."""
    source = outcome.sources[path]
    line, column = source.position(offset)
    located = source.cell(line)
    return Place(*located, column) if located else Place(None, line, column)


def in_document(outcome: Outcome, span: Span) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return line and column of the start and the end of ``span`` in the file as it is stored."""
    source = outcome.sources[span.path]
    start, end = source.in_document(span.start, span.end)
    return source.document.position(start), source.document.position(end)


def relative(outcome: Outcome, path: str) -> str:
    """Return ``path`` relative to the directory of the run, if it is below that."""
    return path.removeprefix(outcome.base.rstrip("/") + "/")


def shown(outcome: Outcome, path: str) -> str:
    """Return the relative ``path`` with everything escaped that is no visible character."""
    return shown_path(relative(outcome, path))


def located(outcome: Outcome, span: Span) -> str:
    """Return path and place of a span's start in the form that terminals and editors link."""
    return f"{shown(outcome, span.path)}:{place(outcome, span.path, span.start)}"


def failure_line(outcome: Outcome, failure: SourceError) -> str:
    """Return one printable line: what could not be checked, and why."""
    return f"{shown(outcome, failure.path)}: {printable(failure.reason)}"


def early_stop_lines(outcome: Outcome) -> Iterator[str]:
    """Yield a line for each program whose analysis stopped early; of many, for the first ones."""
    programs = [
        tuple(stops) for _, stops in groupby(outcome.partly, key=lambda s: (s.path, s.entry))
    ]
    few = len(programs) <= _MAX_LINES
    listed = programs if few else programs[: _MAX_LINES - 1]
    for stops in listed:
        yield early_stop_line(outcome, stops)
    if not few:
        yield (
            f"analysis of {len(programs) - len(listed)} more programs stopped early "
            "(--output-format json lists them): findings may be missing"
        )


def early_stop_line(outcome: Outcome, stops: Sequence[EarlyStop]) -> str:
    """Return one line: the analysis of one program stopped early, and why."""
    first = stops[0]
    name = "" if first.entry == TOP_LEVEL else f":{printable(first.entry)}"
    reasons = "; ".join(printable(stop.reason) for stop in stops)
    where = f"{shown(outcome, first.path)}{name}"
    return f"analysis of `{where}` stopped early ({reasons}): findings may be missing"
