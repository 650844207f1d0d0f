"""Requests for code actions, and the commands that these run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fsdplint.outcome import OutdatedError
from fsdplint.server import actions
from fsdplint.server.session import Snapshot, root_of
from fsdplint.urls import rule_url

if TYPE_CHECKING:
    from fsdplint.server.documents import Document
    from fsdplint.server.language_server import Server


def register(server: Server) -> None:
    """Have ``server`` offer code actions."""
    options = types.CodeActionOptions(code_action_kinds=list(actions.KINDS))

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.session.of_uri(params.text_document.uri)
        # Fixes are made for what was analyzed.
        if document is None or not document.is_valid:
            return []
        only, found = params.context.only, []
        try:
            if actions.wants(only, types.CodeActionKind.QuickFix.value, listed=True):
                found += await _quick_fixes(server, document, params)
            if actions.wants(only, actions.FIX_ALL, listed=False):
                found += await _fix_all(server, document)
        except OutdatedError:
            return []
        return found

    @server.command(actions.EXPLAIN)
    async def explain(rule: str) -> None:
        url = rule_url(rule)
        if server.client.shows:
            await server.window_show_document_async(
                types.ShowDocumentParams(url, external=True, take_focus=True)
            )
        else:
            message = types.ShowMessageParams(types.MessageType.Info, url)
            server.window_show_message(message)


async def _quick_fixes(
    server: Server, document: Document, params: types.CodeActionParams
) -> list[types.CodeAction]:
    session = server.session
    outcome = await server.outcome(root_of(document.path))
    uri, place = params.text_document.uri, params.range
    start = document.offset(uri, place.start, session.encoding)
    end = document.offset(uri, place.end, session.encoding)
    found = [
        finding
        for finding in session.findings(outcome, document.path)
        if finding.span.start <= end and start <= finding.span.end
    ]
    reason, versioned = server.settings.ignore_reason, server.client.versioned
    return list(actions.quick_fixes(session, outcome, found, reason, versioned))


async def _fix_all(server: Server, document: Document) -> list[types.CodeAction]:
    session, root = server.session, root_of(document.path)

    def current() -> Snapshot:
        return session.snapshot(root)

    changes = await server.ended(server.runs.changes(document.path, current(), current))
    open_ = (session.documents.get(old.path) for old, _ in changes.files) if changes else ()
    # Of another file that is not valid now, an older text was fixed.
    if changes is None or not all(each is None or each.is_valid for each in open_):
        return []
    action = actions.fix_all(session, changes, server.client.versioned)
    return [] if action is None else [action]
