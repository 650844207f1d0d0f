"""The state of a session: open documents and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path

from fsdplint.files.discover import project_root
from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding, Span
from fsdplint.outcome import Outcome
from fsdplint.rules.invalid_syntax import RULE as INVALID_SYNTAX
from fsdplint.server.analysis import Choices
from fsdplint.server.documents import Document
from fsdplint.server.positions import range_
from fsdplint.server.shift import between, moved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the result of a run depends on.

    Attributes:
        root: the root of the project.
        paths: what is checked.
        buffers: what is open in the project, by path.
        disk: how often files on disk have changed so far.
    """

    root: str
    paths: tuple[str, ...]
    buffers: Mapping[str, SourceFile]
    choices: Choices
    disk: int


@dataclass(slots=True)
class Session:
    """The state that the editor's notifications change.

    Attributes:
        documents: what is open, by path.
        encoding: the units of positions.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    choices: Choices = field(default_factory=Choices)
    encoding: str = "utf-16"
    disk: int = 0

    def of_uri(self, uri: str) -> Document | None:
        """Return the document that is open at ``uri``, or has a cell there."""
        every = self.documents.values()
        return next((each for each in every if uri == each.uri or uri in each.versions), None)

    def roots(self) -> list[str]:
        """Return the roots of the projects that have open files."""
        return sorted({root_of(path) for path in self.documents})

    def of_root(self, root: str) -> list[Document]:
        """Return the documents that are open in the project at ``root``."""
        return [document for path, document in self.documents.items() if root_of(path) == root]

    def snapshot(self, root: str, folder: str | None = None) -> Snapshot:
        """Return the state of the project at ``root``.

        Args:
            folder: what is checked, as it is on disk, instead of the open files.
        """
        if folder is not None:
            return Snapshot(root, (folder,), {}, self.choices, self.disk)
        buffers = {document.path: document.analyzed for document in self.of_root(root)}
        return Snapshot(root, tuple(sorted(buffers)), buffers, self.choices, self.disk)

    def findings(self, outcome: Outcome, path: str) -> Iterator[Finding]:
        """Yield the findings in the file at ``path``, with their places in the current buffers."""
        document = self.documents.get(path)
        shifts = {
            each.path: between(each.analyzed.text, each.source.text)
            for each in self.documents.values()
            if not each.is_valid
        }
        for finding in outcome.findings:
            if finding.span.path != path:
                continue
            # Code is often invalid while it is being typed, and editors report that themselves.
            if finding.rule == INVALID_SYNTAX.name and document and not document.saved:
                continue
            if (found := moved(finding, shifts)) is not None:
                yield found

    def location(self, outcome: Outcome, span: Span) -> types.Location | None:
        """Return where the editor has ``span``, or the file on disk."""
        document = self.documents.get(span.path)
        if document is not None:
            return document.location(span.start, span.end, self.encoding)
        if (source := outcome.sources.get(span.path)) is None:
            return None
        place = range_(source.document, *source.in_document(span.start, span.end), self.encoding)
        return types.Location(uri_of(span.path), place)


def root_of(path: str) -> str:
    """Return the root of the project that the file at ``path`` belongs to."""
    return project_root(Path(path)).as_posix()


def uri_of(path: str) -> str:
    """Return the address of the file at ``path``."""
    return from_fs_path(path) or ""


def path_of(uri: str) -> str | None:
    """Return the path of the file at an address, None if that is not a file's."""
    return to_fs_path(uri)
