"""The start of a session: which handlers there are, the editor's settings, and files on disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from lsprotocol import types

from fsdplint.server import action_requests, documents_sync, hover, programs, pull
from fsdplint.server.capabilities import Client
from fsdplint.server.language_server import Server

# What decides which findings there are: code, settings, and which releases of PyTorch it runs on.
_WATCHED = (
    "**/*.{py,pyi,ipynb}",
    "**/{pyproject,fsdplint}.toml",
    "**/.gitignore",
    "**/*baseline*.json",
    "**/{uv,poetry,pdm}.lock",
    "**/requirements.txt",
    "**/environment.{yml,yaml}",
)


def serve() -> None:
    """Serve one editor on standard input and output until it ends the session."""
    debug = bool(os.environ.get("FSDPLINT_DEBUG"))
    logging.basicConfig()
    logging.disable(logging.NOTSET if debug else logging.CRITICAL)
    server = Server()
    _session(server)
    documents_sync.register(server)
    action_requests.register(server)
    hover.register(server)
    programs.register(server)
    server.start_io()


def _session(server: Server) -> None:
    """Register the handlers of the session, its settings, and files on disk."""

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.client = Client.of(params.capabilities)
        server.session.encoding = server.client.encoding
        if server.client.pulls:
            pull.register(server)
        server.configure(params.initialization_options)

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        registrations = list(_registrations(server.client))
        if registrations:
            server.client_register_capability(types.RegistrationParams(registrations))
        if server.client.configures:
            await _fetch_settings(server)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def settings_changed(params: types.DidChangeConfigurationParams) -> None:
        if server.client.configures:
            await _fetch_settings(server)
        else:
            server.configure(params.settings)
            server.refresh_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_: types.DidChangeWatchedFilesParams) -> None:
        server.session.disk += 1
        server.refresh_all()


async def _fetch_settings(server: Server) -> None:
    items = [types.ConfigurationItem(section="fsdplint")]
    values = await server.workspace_configuration_async(types.ConfigurationParams(items))
    if values and values[0] is not None:
        server.configure(values[0])
        server.refresh_all()


def _registrations(client: Client) -> Iterator[types.Registration]:
    """Yield the changes that the editor should report, as far as it can."""
    if client.watches:
        watchers = [types.FileSystemWatcher(pattern) for pattern in _WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        yield types.Registration("files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    if client.registers:
        yield types.Registration("settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION)
