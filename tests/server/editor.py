"""An editor for tests: the real server in a process of its own, and what an editor does with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import forked
from lsprotocol import types
from pygls.uris import from_fs_path
from pytest_lsp import ClientServerConfig, LanguageClient
from pytest_lsp.client import make_test_lsp_client
from waiting import LONG

COMMAND = [sys.executable, "-m", "fsdplint", "server"]


def capabilities(
    encoding: str = "utf-16",
    *,
    pull: bool = False,
    watch: bool = False,
    resolve: bool = False,
    **window: Any,
) -> types.ClientCapabilities:
    """What an editor says it can do; it takes edits of versions of documents."""
    diagnostic = types.DiagnosticClientCapabilities() if pull else None
    actions = types.CodeActionClientCapabilities(
        data_support=True, resolve_support=types.ClientCodeActionResolveOptions(["edit"])
    )
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=[encoding]),
        text_document=types.TextDocumentClientCapabilities(
            diagnostic=diagnostic, code_action=actions if resolve else None
        ),
        workspace=types.WorkspaceClientCapabilities(
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                dynamic_registration=watch
            ),
            diagnostics=types.DiagnosticWorkspaceClientCapabilities(refresh_support=pull),
        ),
        window=types.WindowClientCapabilities(**window),
    )


class Editor:
    """Documents as the user sees them, and the requests about them."""

    def __init__(self, client: LanguageClient, encoding: str) -> None:
        self.client = client
        self.encoding = encoding
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.published: list[types.PublishDiagnosticsParams] = []

    def open(self, file: Path, text: str | None = None, language: str = "python") -> str:
        uri = uri_of(file)
        self.texts[uri] = file.read_bytes().decode() if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, language, 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def replace(self, uri: str, old: str, new: str) -> None:
        """Type ``new`` over the one place with ``old``."""
        text = self.texts[uri]
        assert text.count(old) == 1
        start = text.index(old)
        place = types.Range(self.position(uri, start), self.position(uri, start + len(old)))
        self.texts[uri] = text.replace(old, new)
        self.change(uri, types.TextDocumentContentChangePartial(place, new))

    def change(self, uri: str, *changes: types.TextDocumentContentChangeEvent) -> None:
        self.versions[uri] += 1
        identifier = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        parameters = types.DidChangeTextDocumentParams(identifier, list(changes))
        self.client.text_document_did_change(parameters)

    def save(self, uri: str) -> None:
        identifier = types.TextDocumentIdentifier(uri)
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(identifier))

    def close(self, uri: str) -> None:
        identifier = types.TextDocumentIdentifier(uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))

    def position(self, uri: str, offset: int) -> types.Position:
        head = self.texts[uri][:offset].replace("\r\n", "\n").split("\n")
        return types.Position(len(head) - 1, units(head[-1], self.encoding))

    def under(self, uri: str, place: types.Range) -> str:
        """The text in a range, found without the server's own arithmetic."""
        start, end = (self.offset(uri, each) for each in (place.start, place.end))
        return self.texts[uri][start:end]

    def offset(self, uri: str, place: types.Position) -> int:
        every = range(len(self.texts[uri]) + 1)
        return next(each for each in every if self.position(uri, each) == place)

    async def diagnostics(self, uri: str) -> list[types.Diagnostic]:
        """The diagnostics of the current version, as soon as they are there."""

        def newest() -> types.PublishDiagnosticsParams | None:
            own = [each for each in self.published if each.uri == uri]
            return own[-1] if own and own[-1].version == self.versions[uri] else None

        while (found := newest()) is None:
            await asyncio.sleep(0.01)
        return list(found.diagnostics)

    def edited(self, edit: types.WorkspaceEdit) -> dict[str, str]:
        """The texts by address after ``edit``, which is for the current versions."""
        texts: dict[str, str] = {}
        for each in edit.document_changes or ():
            assert isinstance(each, types.TextDocumentEdit)
            uri, version = each.text_document.uri, each.text_document.version
            assert version == self.versions.get(uri)
            texts[uri] = self.texts[uri]
            found = [
                (self.offset(uri, e.range.start), self.offset(uri, e.range.end), e.new_text)
                for e in each.edits
                if isinstance(e, types.TextEdit)
            ]
            for start, end, new in sorted(found, key=lambda e: e[:2], reverse=True):
                texts[uri] = texts[uri][:start] + new + texts[uri][end:]
        return texts


def units(text: str, encoding: str) -> int:
    sizes = {"utf-8": 1, "utf-16-le": 2, "utf-32-le": 4}
    codec = encoding if encoding == "utf-8" else f"{encoding}-le"
    return len(text.encode(codec)) // sizes[codec]


def uri_of(file: Path) -> str:
    uri = from_fs_path(str(file))
    assert uri is not None
    return uri


@asynccontextmanager
async def editor(
    *folders: Path, client: types.ClientCapabilities | None = None, options: Any = None
) -> AsyncIterator[Editor]:
    """An editor with a session that it begins and ends."""
    client = client or capabilities()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    configuration = ClientServerConfig(forked.command("server"), make_test_lsp_client, environment)
    process = await configuration.start()
    assert isinstance(process, LanguageClient)
    general = client.general
    assert general is not None and general.position_encodings
    made = Editor(process, str(general.position_encodings[0]))

    # Before the client's own handler, which keeps the last diagnostics alone.
    builtin = process.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

    def published(parameters: types.PublishDiagnosticsParams) -> None:
        made.published.append(parameters)
        builtin(parameters)

    process.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = published
    workspace = [types.WorkspaceFolder(uri_of(folder), folder.name) for folder in folders]
    await process.initialize_session(
        types.InitializeParams(
            client,
            root_uri=uri_of(folders[0]) if folders else None,
            workspace_folders=workspace,
            initialization_options=options,
        )
    )
    task = asyncio.current_task()
    assert task is not None
    limit = asyncio.get_running_loop().call_later(LONG, task.cancel)
    try:
        yield made
    finally:
        limit.cancel()
        await process.shutdown_session()
        await process.stop()
