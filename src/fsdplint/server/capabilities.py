"""The capabilities of the editor that answers depend on."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types

_ENCODINGS = ("utf-8", "utf-16", "utf-32")


@dataclass(frozen=True, slots=True)
class Client:
    """The capabilities of an editor.

    Attributes:
        encoding: the units of positions, the first of its list that is known here.
        pulls: whether it requests diagnostics, so that none is sent on its own.
        refreshes: whether it can be asked to request them again.
        watches: whether it reports changes of files on disk.
        configures: whether it has settings to request.
        registers: whether it reports their changes if asked to.
        resolves: whether it asks for the edit of a code action once the user chooses it.
        versioned: whether it takes edits of a version of a document.
        shows: whether it can open a document, or a page in a browser.
        markdown: whether it renders Markdown in hovers.
        progress: whether it shows the progress of what the server begins.
    """

    encoding: str = "utf-16"
    pulls: bool = False
    refreshes: bool = False
    watches: bool = False
    configures: bool = False
    registers: bool = False
    resolves: bool = False
    versioned: bool = False
    shows: bool = False
    markdown: bool = False
    progress: bool = False

    @classmethod
    def of(cls, given: types.ClientCapabilities) -> Client:
        """Return what an editor says it can do."""
        workspace = given.workspace or types.WorkspaceClientCapabilities()
        document = given.text_document or types.TextDocumentClientCapabilities()
        window = given.window or types.WindowClientCapabilities()
        general = given.general or types.GeneralClientCapabilities()
        hover = document.hover or types.HoverClientCapabilities()
        wanted = [str(getattr(e, "value", e)) for e in general.position_encodings or ()]
        known = [encoding for encoding in wanted if encoding in _ENCODINGS]
        watched, edits = workspace.did_change_watched_files, workspace.workspace_edit
        settings = workspace.did_change_configuration
        actions = document.code_action or types.CodeActionClientCapabilities()
        resolved = actions.resolve_support.properties if actions.resolve_support else ()
        return cls(
            encoding=known[0] if known else "utf-16",
            pulls=document.diagnostic is not None,
            refreshes=bool(workspace.diagnostics and workspace.diagnostics.refresh_support),
            watches=bool(watched and watched.dynamic_registration),
            configures=bool(workspace.configuration),
            registers=bool(settings and settings.dynamic_registration),
            resolves="edit" in resolved and bool(actions.data_support),
            versioned=bool(edits and edits.document_changes),
            shows=bool(window.show_document and window.show_document.support),
            markdown=types.MarkupKind.Markdown in (hover.content_format or ()),
            progress=bool(window.work_done_progress),
        )
