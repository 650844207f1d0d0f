"""Notifications about open documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fsdplint.server.documents import changed, opened, saved
from fsdplint.server.session import path_of

if TYPE_CHECKING:
    from fsdplint.server.language_server import Server

# What pygls handles by itself, too: its own copy of the buffers counts form feeds as line ends, and
# clamps the positions of a notification to that.
_OURS = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
)
# Seconds from the last change of a document to its check.
_PAUSE = 0.2


def register(server: Server) -> None:
    """Have ``server`` follow what is open."""
    session = server.session
    for method in _OURS:
        del server.protocol.fm.builtin_features[method]

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        path = path_of(item.uri)
        if path is not None:
            document = opened(item.uri, path, item.version, item.text)
            session.documents[document.path] = document
            server.refresh()

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        document = session.of_uri(params.text_document.uri)
        if document is not None:
            version, analyze = params.text_document.version, server.settings.run == "onType"
            document = changed(document, version, params.content_changes, session.encoding, analyze)
            session.documents[document.path] = document
            server.refresh(_PAUSE)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        document = session.of_uri(params.text_document.uri)
        if document is not None:
            session.documents[document.path] = saved(document)
            session.disk += 1
            server.refresh()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        document = session.of_uri(params.text_document.uri)
        if document is not None:
            del session.documents[document.path]
            server.refresh()
