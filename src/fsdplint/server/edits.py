"""Convert changes of files to LSP edits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import accumulate, groupby

from lsprotocol import types

from fsdplint.files.file import SourceFile
from fsdplint.files.lexing import lines
from fsdplint.finding import Edit, Span
from fsdplint.outcome import Outcome
from fsdplint.server.session import Session


def workspace_edit(
    session: Session, outcome: Outcome, edits: Iterable[Edit], versioned: bool
) -> types.WorkspaceEdit | None:
    """Return ``edits`` for the editor, None if it has no place for one.

    Args:
        versioned: whether the editor takes edits of a version, which it refuses for a later one.
    """
    files: dict[str, list[types.TextEdit]] = {}
    versions: dict[str, int | None] = {}
    for path, group in groupby(sorted(edits), key=lambda edit: edit.span.path):
        document = session.documents.get(path)
        for edit in group:
            place = session.location(outcome, edit.span)
            if place is None:
                return None
            files.setdefault(place.uri, []).append(types.TextEdit(place.range, edit.text))
            versions[place.uri] = document.versions[place.uri] if document else None
    if not versioned:
        return types.WorkspaceEdit(changes=files)
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uri, versions[uri]), each
            )
            for uri, each in files.items()
        ]
    )


def difference(old: SourceFile, new: SourceFile) -> Iterator[Edit]:
    """Yield edits by which ``old`` becomes ``new``, of whole lines, and each in one cell."""
    if old.notebook is None or new.notebook is None:
        yield from _of_text(old.path, 0, old.text, new.text)
        return
    start = 0
    for before, after in zip(old.notebook.cells, new.notebook.cells, strict=True):
        yield from _of_text(old.path, start, before.source, after.source)
        start += len(before.code)


def _of_text(path: str, start: int, old: str, new: str) -> Iterator[Edit]:
    """Yield edits by which ``old``, which begins at ``start`` in its file, becomes ``new``."""
    before, after = lines(old), lines(new)
    starts = list(accumulate(map(len, before), initial=start))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, j, k, end in matcher.get_opcodes():
        if tag != "equal":
            yield Edit(Span(path, starts[i], starts[j]), "".join(after[k:end]))
