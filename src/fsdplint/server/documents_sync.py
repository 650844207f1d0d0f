"""Follow the documents that the editor opens, changes, saves and closes."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.server.documents import (
    Document,
    changed,
    changed_notebook,
    opened,
    opened_notebook,
    saved,
)
from fsdplint.server.language_server import Server
from fsdplint.server.notebooks import cells
from fsdplint.server.push import PAUSE
from fsdplint.server.session import path_of

# pygls handles these, too. Its own copy of a buffer counts form feeds as line ends and clamps the
# positions of a notification to that, so its handlers are removed.
_OURS = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)
_NOTEBOOK = ".ipynb"


def register(server: Server) -> None:
    """Register the handlers of notifications about documents."""
    for method in _OURS:
        del server.protocol.fm.builtin_features[method]
    _files(server)
    _notebooks(server)


def _files(server: Server) -> None:
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        path = path_of(item.uri)
        # JupyterLab sends the code of a notebook as Python; another's JSON is no text to check.
        if path is not None and (item.language_id == "python" or not path.endswith(_NOTEBOOK)):
            _keep(server, opened(item.uri, path, item.version, item.text), 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        document = session.of_uri(params.text_document.uri)
        if document is not None:
            version, analyze = params.text_document.version, server.settings.run == "onType"
            changes = params.content_changes
            _keep(server, changed(document, version, changes, session.encoding, analyze), PAUSE)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        _save(server, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        _close(server, params.text_document.uri)


def _notebooks(server: Server) -> None:
    session = server.session

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenNotebookDocumentParams) -> None:
        notebook = params.notebook_document
        path = path_of(notebook.uri)
        if path is not None and path.endswith(_NOTEBOOK):
            found = cells(notebook.cells, params.cell_text_documents)
            _keep(server, opened_notebook(notebook.uri, path, notebook.version, found), 0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeNotebookDocumentParams) -> None:
        document, change = session.of_uri(params.notebook_document.uri), params.change.cells
        if document is not None and change is not None:
            version, analyze = params.notebook_document.version, server.settings.run == "onType"
            after = changed_notebook(document, version, change, session.encoding, analyze)
            _keep(server, after, PAUSE)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveNotebookDocumentParams) -> None:
        _save(server, params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseNotebookDocumentParams) -> None:
        _close(server, params.notebook_document.uri)


def _keep(server: Server, document: Document, pause: float) -> None:
    server.session.documents[document.path] = document
    server.refresh(pause)


def _save(server: Server, uri: str) -> None:
    document = server.session.of_uri(uri)
    if document is not None:
        # Files that no editor watches may have changed, too.
        server.session.disk += 1
        _keep(server, saved(document), 0)


def _close(server: Server, uri: str) -> None:
    document = server.session.of_uri(uri)
    if document is not None:
        del server.session.documents[document.path]
        server.refresh()
