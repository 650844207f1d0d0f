"""Pull diagnostics: the editor requests those of a document or of the workspace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from fsdplint.files.disk import digest
from fsdplint.files.file import absolute
from fsdplint.outcome import OutdatedError
from fsdplint.server.diagnostics import SOURCE
from fsdplint.server.language_server import Server
from fsdplint.server.session import path_of, root_of

_SERVER_CANCELLED = -32802


class _Retrigger(JsonRpcException):
    """The document changed during the check, so the editor has to request again."""

    CODE = _SERVER_CANCELLED
    MESSAGE = "the document has changed"


def _retrigger() -> _Retrigger:
    return _Retrigger(data=types.DiagnosticServerCancellationData(retrigger_request=True))


def register(server: Server) -> None:
    """Register the handlers of requests for diagnostics."""
    options = types.DiagnosticOptions(
        inter_file_dependencies=True, workspace_diagnostics=True, identifier=SOURCE
    )

    @server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, options)
    async def document_diagnostic(
        params: types.DocumentDiagnosticParams,
    ) -> types.DocumentDiagnosticReport:
        document = server.session.of_uri(params.text_document.uri)
        if document is None or document.source.notebook is not None:  # cells' are sent
            return types.RelatedFullDocumentDiagnosticReport([])
        try:
            await server.settled()
            outcome = await server.outcome(root_of(document.path))
        except OutdatedError as error:
            raise _retrigger() from error
        found = server.diagnostics(outcome, document.path).get(params.text_document.uri, [])
        name = _name(found)
        if name == params.previous_result_id:
            return types.RelatedUnchangedDocumentDiagnosticReport(name)
        return types.RelatedFullDocumentDiagnosticReport(found, result_id=name)

    @server.feature(types.WORKSPACE_DIAGNOSTIC)
    async def workspace_diagnostic(
        params: types.WorkspaceDiagnosticParams,
    ) -> types.WorkspaceDiagnosticReport:
        before = {each.uri: each.value for each in params.previous_result_ids}
        try:
            found = await _in_folders(server)
        except OutdatedError as error:
            raise _retrigger() from error
        # Clear the editor's diagnostics of files that have no findings any more, and of notebooks
        # that are open: these have theirs in cells.
        shown = {uri for each in server.session.documents.values() for uri in each.versions}
        closed = before.keys() - shown
        found = {**dict.fromkeys(closed, ()), **found}
        return types.WorkspaceDiagnosticReport(
            [_report(uri, each, before.get(uri)) for uri, each in sorted(found.items())]
        )


async def _in_folders(server: Server) -> dict[str, Sequence[types.Diagnostic]]:
    """Return the diagnostics of all files on disk that have some and are not open.

    Raises:
        OutdatedError: the settings or the disk have changed in the meantime.
    """
    found: dict[str, Sequence[types.Diagnostic]] = {}
    for uri in server.workspace.folders or filter(None, [server.workspace.root_uri]):
        folder = path_of(uri)
        if folder is None:
            continue
        outcome = await server.outcome(absolute(folder), absolute(folder))
        paths = {finding.span.path for finding in outcome.findings}
        for path in paths - server.session.documents.keys():
            found.update(server.diagnostics(outcome, path))
    return found


def _report(
    uri: str, found: Sequence[types.Diagnostic], before: str | None
) -> types.WorkspaceDocumentDiagnosticReport:
    name = _name(found)
    if name == before:
        return types.WorkspaceUnchangedDocumentDiagnosticReport(uri, name)
    return types.WorkspaceFullDocumentDiagnosticReport(uri, list(found), result_id=name)


def _name(found: Iterable[types.Diagnostic]) -> str:
    """Return an identifier of a list of diagnostics; equal lists have equal ones."""
    return digest(repr(list(found)).encode("utf-8", "surrogatepass"))
