"""Open notebooks. To the editor, each cell is a document of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from lsprotocol import types

from fsdplint.files.file import SourceFile, from_bytes, from_text
from fsdplint.files.notebook import Cell as CodeCell
from fsdplint.server.positions import offset, range_

TYPE = "jupyter-notebook"


@dataclass(frozen=True, slots=True)
class Cell:
    """A notebook cell. Cells that are not Python are kept, since cells are numbered."""

    uri: str
    version: int
    is_code: bool
    text: str

    def changed(
        self, version: int, changes: Iterable[types.TextDocumentContentChangeEvent], encoding: str
    ) -> Cell:
        """Return the cell after ``changes``, each of which refers to the result before."""
        text = self.text
        for change in changes:
            text = with_change(text, change, encoding)
        return replace(self, version=version, text=text)


def with_change(text: str, change: types.TextDocumentContentChangeEvent, encoding: str) -> str:
    """Return ``text`` after one change."""
    if not isinstance(change, types.TextDocumentContentChangePartial):
        return change.text
    source = from_text(text, "buffer")
    start = offset(source, change.range.start, encoding)
    end = max(start, offset(source, change.range.end, encoding))
    return text[:start] + change.text + text[end:]


def cells(
    notebook: Iterable[types.NotebookCell], documents: Iterable[types.TextDocumentItem]
) -> tuple[Cell, ...]:
    """Return the cells that an editor describes."""
    by_uri = {document.uri: document for document in documents}
    return tuple(_cell(cell, by_uri.get(cell.document)) for cell in notebook)


def _cell(cell: types.NotebookCell, document: types.TextDocumentItem | None) -> Cell:
    if document is None:
        return Cell(cell.document, 0, False, "")
    code = cell.kind is types.NotebookCellKind.Code and document.language_id == "python"
    return Cell(cell.document, document.version, code, document.text)


def changed(
    before: Sequence[Cell], change: types.NotebookDocumentCellChanges, encoding: str
) -> tuple[Cell, ...]:
    """Return the cells after a change of their order and of their texts."""
    after = list(before)
    structure = change.structure
    if structure is not None:
        array = structure.array
        known = {cell.uri: cell for cell in before}
        new = cells(array.cells or (), structure.did_open or ())
        opened = {document.uri for document in structure.did_open or ()}
        # A cell that moves is not opened again.
        moved = [cell if cell.uri in opened else known.get(cell.uri, cell) for cell in new]
        after[array.start : array.start + array.delete_count] = moved
    for content in change.text_content or ():
        after = [
            cell.changed(content.document.version, content.changes, encoding)
            if cell.uri == content.document.uri
            else cell
            for cell in after
        ]
    return tuple(after)


def as_notebook(path: str, every: Iterable[Cell]) -> SourceFile:
    """Return the file that holds the cells."""
    listed = [
        {"cell_type": "code" if cell.is_code else "raw", "source": cell.text} for cell in every
    ]
    return from_bytes(json.dumps({"cells": listed}).encode(), path)


def location(
    source: SourceFile, every: Sequence[Cell], start: int, end: int, encoding: str
) -> types.Location | None:
    """Return where the editor has the code from ``start`` to ``end``, in one cell."""
    for cell, first in reversed(_starts(source)):
        if first <= start:
            # The end of the last line belongs to the joined code alone.
            last = min(end - first, len(cell.source))
            place = range_(from_text(cell.code, source.path), start - first, last, encoding)
            return types.Location(every[cell.number - 1].uri, place)
    return None


def offset_of(
    source: SourceFile, every: Sequence[Cell], uri: str, place: types.Position, encoding: str
) -> int:
    """Return the offset in the joined code of a place in a cell, -1 if that has no code."""
    for cell, first in _starts(source):
        if every[cell.number - 1].uri == uri:
            return first + offset(from_text(cell.code, source.path), place, encoding)
    return -1


def _starts(source: SourceFile) -> list[tuple[CodeCell, int]]:
    """Return the code cells, with where each starts in the joined code."""
    found = source.notebook.cells if source.notebook else ()
    starts = accumulate((len(cell.code) for cell in found), initial=0)
    return list(zip(found, starts, strict=False))
