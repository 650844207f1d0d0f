"""The buffers that are open in the editor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsprotocol import types

from fsdplint.engine.frontend.problem import is_python
from fsdplint.files.file import SourceFile, absolute
from fsdplint.server.analysis import as_file
from fsdplint.server.positions import offset


@dataclass(frozen=True, slots=True)
class Document:
    """A buffer in one state.

    Attributes:
        version: the editor's number of this state.
        source: the buffer as a file, which may not exist yet.
        analyzed: what to analyze: the last state that was valid Python, else the buffer itself.
        saved: whether the buffer is as it was when it was opened or last saved.
    """

    uri: str
    version: int | None
    source: SourceFile
    analyzed: SourceFile
    saved: bool = True

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self.source.path

    @property
    def is_valid(self) -> bool:
        """True if the buffer is analyzed as it is."""
        return self.source is self.analyzed


def opened(uri: str, path: str, version: int | None, text: str) -> Document:
    """Return the document for a buffer that was just opened."""
    source = as_file(absolute(path), text)
    return Document(uri, version, source, source)


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
    source = document.source
    for change in changes:
        text = change.text
        if isinstance(change, types.TextDocumentContentChangePartial):
            start = offset(source, change.range.start, encoding)
            end = max(start, offset(source, change.range.end, encoding))
            text = source.text[:start] + text + source.text[end:]
        source = as_file(document.path, text)
    return edited(document, version, source, analyze)


def edited(
    document: Document, version: int | None, source: SourceFile, analyze: bool = True
) -> Document:
    """Return ``document`` with another state of the buffer, which is not saved."""
    # Without a valid state before, this one is analyzed, whether it is valid or not.
    valid = analyze and (is_python(source.text) or not is_python(document.analyzed.text))
    analyzed = source if valid else document.analyzed
    return replace(document, version=version, source=source, analyzed=analyzed, saved=False)


def saved(document: Document) -> Document:
    """Return ``document`` after it was saved, which is analyzed like any file on disk."""
    return replace(document, analyzed=document.source, saved=True)
