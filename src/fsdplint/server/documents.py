"""The buffers that are open in the editor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsprotocol import types

from fsdplint.configs.document import parse
from fsdplint.engine.frontend.problem import is_python
from fsdplint.files.discover import CONFIG_SUFFIXES, is_script
from fsdplint.files.file import SourceFile, absolute
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.server import notebooks
from fsdplint.server.analysis import as_file
from fsdplint.server.notebooks import Cell
from fsdplint.server.positions import offset, range_


@dataclass(frozen=True, slots=True)
class Document:
    """A file or a notebook in one state.

    Attributes:
        version: the editor's number of this state.
        source: the buffer as a file, which may not exist yet.
        analyzed: what to analyze: the last state that was valid Python, else the buffer itself.
        saved: whether the buffer is as it was when it was opened or last saved.
        cells: those of a notebook, each of which is a document to the editor.
    """

    uri: str
    version: int | None
    source: SourceFile
    analyzed: SourceFile
    saved: bool = True
    cells: tuple[Cell, ...] = ()

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self.source.path

    @property
    def is_valid(self) -> bool:
        """True if the buffer is analyzed as it is."""
        return self.source is self.analyzed

    @property
    def versions(self) -> dict[str, int | None]:
        """The addresses that the editor has for parts of it, with their versions."""
        if self.source.notebook is None:
            return {self.uri: self.version}
        return {cell.uri: cell.version for cell in self.cells}

    def location(self, start: int, end: int, encoding: str) -> types.Location | None:
        """Return where the editor has the code from ``start`` to ``end``."""
        if self.source.notebook is not None:
            return notebooks.location(self.source, self.cells, start, end, encoding)
        return types.Location(self.uri, range_(self.source, start, end, encoding))

    def offset(self, uri: str, place: types.Position, encoding: str) -> int:
        """Return the offset of a place in the part at ``uri``; -1 if there is no code."""
        if self.source.notebook is not None:
            return notebooks.offset_of(self.source, self.cells, uri, place, encoding)
        return offset(self.source, place, encoding)


def opened(uri: str, path: str, version: int | None, text: str) -> Document:
    """Return the document for a buffer that was just opened."""
    source = as_file(absolute(path), text)
    return Document(uri, version, source, source)


def opened_notebook(uri: str, path: str, version: int, cells: tuple[Cell, ...]) -> Document:
    """Return the document for a notebook that was just opened."""
    source = notebooks.as_notebook(absolute(path), cells)
    return Document(uri, version, source, source, cells=cells)


def changed(
    document: Document,
    version: int | None,
    changes: Sequence[types.TextDocumentContentChangeEvent],
    encoding: str,
    analyze: bool,
) -> Document:
    """Return ``document`` after ``changes``, each of which refers to the result of those before.

    Args:
        analyze: whether the new state is to be analyzed, though it is not saved.
    """
    text = document.source.text
    for change in changes:
        text = notebooks.with_change(text, change, encoding)
    return _edited(document, version, as_file(document.path, text), analyze)


def changed_notebook(
    document: Document,
    version: int,
    change: types.NotebookDocumentCellChanges,
    encoding: str,
    analyze: bool,
) -> Document:
    """Return a notebook after a change of its cells; ``analyze`` as in `changed`."""
    cells = notebooks.changed(document.cells, change, encoding)
    source = notebooks.as_notebook(document.path, cells)
    return replace(_edited(document, version, source, analyze), cells=cells)


def saved(document: Document) -> Document:
    """Return ``document`` after it was saved, which is analyzed like any file on disk."""
    return replace(document, analyzed=document.source, saved=True)


def _edited(document: Document, version: int | None, source: SourceFile, analyze: bool) -> Document:
    """Return ``document`` with another state of the buffer, which is not saved."""
    # Without a valid state before, this one is analyzed, whether it is valid or not.
    valid = analyze and (_parses(source) or not _parses(document.analyzed))
    analyzed = source if valid else document.analyzed
    return replace(document, version=version, source=source, analyzed=analyzed, saved=False)


def _parses(source: SourceFile) -> bool:
    """Return whether a buffer is valid in the language that its name says."""
    if not source.path.endswith(CONFIG_SUFFIXES):
        return is_script(source.path) or is_python(source.text)
    try:
        parse(source.text, source.path)
    except InvalidSyntax:
        return False
    return True
