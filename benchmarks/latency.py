"""How long the language server takes from a keystroke to the diagnostics.

    python -m benchmarks.latency FILE [--edits 50]

Starts the server, opens FILE as an editor does, and types comments into its functions, one after
the other in turn. Prints the milliseconds from each change to the diagnostics of its version, with
the pause that the server waits for further changes, and the peak memory of the server. FILE on disk
stays as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from pathlib import Path
from statistics import quantiles

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from fsdplint.server.push import PAUSE

_LIMIT = 120.0
_BODY = re.compile(r"^[ \t]+\S.*\n", re.MULTILINE)


class _Editor(LanguageClient):
    """The client, and the versions whose diagnostics have come."""

    def __init__(self) -> None:
        super().__init__("benchmark", "1")
        self.came: dict[int, asyncio.Event] = {}

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            if params.version in self.came:
                self.came[params.version].set()

    async def until(self, version: int) -> float:
        """Return the milliseconds until the diagnostics of ``version`` come."""
        began = time.perf_counter()
        self.came[version] = asyncio.Event()
        await asyncio.wait_for(self.came[version].wait(), _LIMIT)
        return (time.perf_counter() - began) * 1000


async def measured(file: Path, edits: int) -> tuple[float, list[float], float]:
    """Return the milliseconds of the first check and of each edit, and the peak memory in MB."""
    text = file.read_text("utf-8")
    uri = file.as_uri()
    editor = _Editor()
    await editor.start_io(sys.executable, "-m", "fsdplint", "server")
    root = types.WorkspaceFolder(file.parent.as_uri(), "project")
    await editor.initialize_async(
        types.InitializeParams(types.ClientCapabilities(), workspace_folders=[root])
    )
    editor.initialized(types.InitializedParams())
    editor.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, text))
    )
    first = await editor.until(1)
    places = [text.count("\n", 0, found.start()) for found in _BODY.finditer(text)]
    took = []
    for version in range(2, edits + 2):
        line = places[version * 7919 % len(places)]
        column = len(text.splitlines()[line])
        at = types.Position(line, column)
        typed = types.TextDocumentContentChangePartial(types.Range(at, at), "  #")
        text = _inserted(text, line, "  #")
        editor.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, uri), [typed]
            )
        )
        took.append(await editor.until(version))
    memory = _peak(editor)
    await editor.shutdown_async(None)
    editor.exit(None)
    await editor.stop()
    return first, took, memory


def _inserted(text: str, line: int, typed: str) -> str:
    lines = text.splitlines()
    lines[line] += typed
    return "\n".join(lines) + "\n"


def _peak(editor: LanguageClient) -> float:
    status = Path(f"/proc/{editor._server.pid}/status").read_text()  # type: ignore[union-attr]  # it runs
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the language server's latency.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--edits", type=int, default=50)
    given = parser.parse_args()
    first, took, memory = asyncio.run(measured(given.file.resolve(), given.edits))
    cuts = quantiles(took, n=20)
    print(f"{given.file}: {given.edits} edits, a pause of {PAUSE * 1000:.0f} ms included")
    print(f"first {first:.0f} ms, median {cuts[9]:.0f} ms, 95 % within {cuts[18]:.0f} ms")
    print(f"peak memory {memory:.0f} MB")


if __name__ == "__main__":
    main()
