"""The language server: its session, and what its handlers share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from fsdplint import __version__
from fsdplint.cli.main import explained
from fsdplint.engine.frontend.problem import is_python
from fsdplint.engine.inspection.summary import Inspection
from fsdplint.outcome import Outcome, OutdatedError
from fsdplint.server.capabilities import Client
from fsdplint.server.diagnostics import diagnostic
from fsdplint.server.documents import Document
from fsdplint.server.editor_settings import EditorSettings, EditorSettingsError, read
from fsdplint.server.push import PAUSE, Found, Push
from fsdplint.server.runs import Runs
from fsdplint.server.session import Session, Snapshot, root_of

T = TypeVar("T")

# All cells, so that their numbers are those of the notebook.
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    [types.NotebookDocumentFilterWithNotebook("jupyter-notebook")], save=True
)


class Server(LanguageServer):
    """A session with one editor."""

    def __init__(self) -> None:
        super().__init__("fsdplint", __version__, notebook_document_sync=_NOTEBOOKS)
        self.session = Session()
        self.settings = EditorSettings()
        self.client = Client()
        self.runs = Runs()
        self.push = Push(self.found, self.text_document_publish_diagnostics)
        self.shown: set[str] = set()

    # What the engine finds

    async def settled(self) -> None:
        """Return once nothing has changed for a moment.

        Raises:
            OutdatedError: something has changed.
        """
        before = dict(self.session.documents)
        await asyncio.sleep(PAUSE)
        if self.session.documents != before:
            raise OutdatedError

    async def outcome(self, root: str, folder: str | None = None) -> Outcome:
        """Return the findings of the current state of a project; none if it cannot be checked.

        Args:
            folder: what to check, as it is on disk, instead of the open files.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """

        def current() -> Snapshot:
            return self.session.snapshot(root, folder)

        found = await self.ended(self.runs.outcome(current(), current))
        return found or Outcome((), {})

    async def ended(self, run: Awaitable[T]) -> T | None:
        """Return the result of a run of the engine; if it fails, show why and return None.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        try:
            return await run
        except OutdatedError:
            raise
        except Exception as error:  # whatever it is, the server goes on
            self.show(_line(error))
        return None

    async def inspection(self, document: Document) -> tuple[Inspection, Outcome] | None:
        """Return what the engine knows of a document; None if it is not valid Python.

        Raises:
            OutdatedError: the state has changed in the meantime.
        """
        root = root_of(document.path)
        if not document.is_valid or not is_python(document.source.text):
            return None

        def current() -> Snapshot:
            return self.session.snapshot(root)

        return await self.ended(self.runs.inspection(document.path, current(), current))

    async def found(self) -> Found | None:
        """Return the diagnostics to send, None if a document changes in the meantime.

        Editors that request them request none of a notebook's cells.
        """
        found: Found = {}
        try:
            for root in self.session.roots():
                documents = [each for each in self.session.of_root(root) if self._pushes(each)]
                outcome = await self.outcome(root) if documents else Outcome((), {})
                for document in documents:
                    shown = self.diagnostics(outcome, document.path)
                    for uri, version in document.versions.items():
                        found[uri] = version, shown.get(uri, [])
        except OutdatedError:
            return None
        return found

    def _pushes(self, document: Document) -> bool:
        return not self.client.pulls or document.source.notebook is not None

    def diagnostics(self, outcome: Outcome, path: str) -> dict[str, list[types.Diagnostic]]:
        """Return the diagnostics of the file at ``path``, by address: of cells or of the file."""
        found: dict[str, list[types.Diagnostic]] = {}
        for finding in self.session.findings(outcome, path):
            place = self.session.location(outcome, finding.span)
            if place is not None:
                made = diagnostic(finding, place, partial(self.session.location, outcome))
                found.setdefault(place.uri, []).append(made)
        return found

    # What changes

    def refresh(self, delay: float = 0) -> None:
        """Send the diagnostics that the editor does not request, after ``delay`` seconds."""
        self.push.soon(delay)

    def refresh_all(self) -> None:
        """Send all diagnostics, or have them requested, after settings or files on disk changed."""
        self.shown.clear()
        self.refresh(PAUSE)
        if self.client.pulls and self.client.refreshes:
            self.workspace_diagnostic_refresh(None)

    def configure(self, value: object) -> None:
        """Take the editor's settings."""
        try:
            self.settings = read(value)
        except EditorSettingsError as error:
            self.show(f"fsdplint: {error}")
        self.session.choices = self.settings.choices

    def show(self, message: str) -> None:
        """Show the user a message, unless it was shown since settings or files last changed."""
        if message not in self.shown:
            self.shown.add(message)
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, message))

    def report_server_error(self, error: Exception, source: object) -> None:  # noqa: ARG002
        """Show an error that is not the answer to a request."""
        self.show(_line(error))


def _line(error: Exception) -> str:
    """Return what the command line prints for ``error``; the traceback is logged for debugging."""
    try:
        return f"fsdplint: {explained(error)}"
    except Exception:  # FSDPLINT_DEBUG is set
        logging.getLogger(__name__).error("internal error", exc_info=error)
        return f"fsdplint: internal error, see the log: {type(error).__name__}"
