"""Run `inspect` and `verify` in a separate process, with progress and cancellation."""

from __future__ import annotations

import asyncio
import os
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process, create_subprocess_exec
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from lsprotocol import types

from fsdplint.outcome import OutdatedError
from fsdplint.process.child import command
from fsdplint.server.hints import INSPECT, VERIFY, code_lenses, inlay_hints
from fsdplint.server.language_server import Server
from fsdplint.server.session import path_of, root_of, uri_of

_COMMANDS = {INSPECT: "inspect", VERIFY: "verify"}


def register(server: Server) -> None:
    """Register the commands `inspect` and `verify`, code lenses, and inlay hints."""

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        document = server.session.of_uri(params.text_document.uri)
        if document is None or document.cells or not server.settings.code_lens:
            return []
        return list(code_lenses(document, server.session.encoding))

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        uri = params.text_document.uri
        document = server.session.of_uri(uri)
        if document is None or not server.settings.inlay_hints:
            return []
        try:
            found = await server.inspection(document)
        except OutdatedError:
            return []
        if found is None:
            return []
        hints = inlay_hints(found[0], document, uri, server.session.encoding)
        first, last = params.range.start, params.range.end
        return [hint for hint in hints if first <= hint.position <= last]

    @server.command(INSPECT)
    async def inspect(uri: str) -> str | None:
        return await _run(server, INSPECT, uri)

    @server.command(VERIFY)
    async def verify(uri: str) -> str | None:
        return await _run(server, VERIFY, uri)


async def _run(server: Server, name: str, uri: str) -> str | None:
    """Run a command on the script at ``uri``, as it is on disk, and show what it prints."""
    path = path_of(uri)
    if path is None:
        server.show(f"fsdplint: {uri} is not a file")
        return None
    word = _COMMANDS[name]
    title = f"fsdplint {word} {Path(path).name}"
    process = await create_subprocess_exec(
        *command("fsdplint.cli.main"),
        word,
        path,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env={**os.environ, "NO_COLOR": "1"},
        cwd=root_of(path),
    )
    text = await _watched(server, title, process)
    if text is not None:
        await _shown(server, title, text)
    return text


async def _watched(server: Server, title: str, process: Process) -> str | None:
    """Return what ``process`` prints, None if the user cancels it."""
    token = str(uuid4())
    progress = server.work_done_progress
    if server.client.progress:
        await progress.create_async(token)
        progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True))
    output = asyncio.ensure_future(process.communicate())
    cancelled = progress.tokens.get(token)
    while not output.done():
        await asyncio.wait([output], timeout=0.1)
        if cancelled is not None and cancelled.cancelled():
            with suppress(ProcessLookupError):
                process.terminate()
            break
    printed, _ = await output
    if server.client.progress:
        progress.end(token, types.WorkDoneProgressEnd())
        del progress.tokens[token]
    if cancelled is not None and cancelled.cancelled():
        return None
    return printed.decode("utf-8", "replace")


async def _shown(server: Server, title: str, text: str) -> None:
    """Show ``text`` as a document, if the editor can open one."""
    if not server.client.shows:
        return
    folder = Path(tempfile.mkdtemp(prefix="fsdplint-"))
    file = folder / f"{title}.txt"
    file.write_text(text, "utf-8")
    await server.window_show_document_async(types.ShowDocumentParams(uri_of(file.as_posix())))
