"""Answer requests for code actions, and run their commands."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.outcome import OutdatedError
from fsdplint.server import actions
from fsdplint.server.documents import Document
from fsdplint.server.language_server import Server
from fsdplint.server.session import Snapshot, root_of
from fsdplint.urls import rule_url


def register(server: Server) -> None:
    """Register the handlers of code actions."""
    options = types.CodeActionOptions(code_action_kinds=list(actions.KINDS), resolve_provider=True)

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

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        try:
            return await _resolved(server, action)
        except OutdatedError:
            return action

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
    offered = list(actions.quick_fixes(session, outcome, found, uri, server.settings.ignore_reason))
    if server.client.resolves:
        return offered
    resolved = [await _resolved(server, action) for action in offered]
    return [action for action in resolved if action.edit or action.command]


async def _resolved(server: Server, action: types.CodeAction) -> types.CodeAction:
    """Return ``action`` with its edit; without one, and with a message, if it was rolled back."""
    session, cure = server.session, actions.cure(action)
    document = session.of_uri(cure.uri) if cure is not None else None
    if cure is None or document is None:
        return action
    root = root_of(document.path)

    def current() -> Snapshot:
        return session.snapshot(root)

    snapshot, outcome = current(), await server.outcome(root)
    finding = cure.finding(outcome, document.path)
    if finding is None:
        return action
    reason = server.settings.ignore_reason if cure.suppress else ""
    run = server.runs.cured(finding, reason, outcome, snapshot, current)
    changes = await server.ended(run)
    if changes is None:
        return action
    for _, note in changes.notes:
        server.show(f"fsdplint: {note}")
    action.edit = actions.edit_of(session, changes, server.client.versioned)
    return action


async def _fix_all(server: Server, document: Document) -> list[types.CodeAction]:
    session, root = server.session, root_of(document.path)

    def current() -> Snapshot:
        return session.snapshot(root)

    changes = await server.ended(server.runs.changes(document.path, current(), current))
    versioned = server.client.versioned
    action = actions.fix_all(session, changes, versioned) if changes is not None else None
    return [] if action is None else [action]
