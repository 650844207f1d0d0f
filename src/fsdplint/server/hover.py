"""Hovers: what a finding means, and what the engine knows of the code."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.finding import Finding
from fsdplint.outcome import OutdatedError
from fsdplint.pages import harm, page, unmarked
from fsdplint.rules import RULES
from fsdplint.server import facts
from fsdplint.server.documents import Document
from fsdplint.server.language_server import Server
from fsdplint.server.session import root_of
from fsdplint.urls import rule_url

_SUMMARIES = {rule.name: rule.summary for rule in RULES}


def register(server: Server) -> None:
    """Register the handler of hovers."""

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.session.of_uri(params.text_document.uri)
        if document is None:
            return None
        uri, encoding = params.text_document.uri, server.session.encoding
        place = document.offset(uri, params.position, encoding)
        try:
            parts = [
                *await _meaning(server, document, place),
                *await _known(server, document, place),
            ]
        except OutdatedError:
            return None
        text = "\n\n---\n\n".join(parts)
        kind = types.MarkupKind.Markdown
        if not server.client.markdown:
            text, kind = unmarked(text).replace("**", ""), types.MarkupKind.PlainText
        return types.Hover(types.MarkupContent(kind, text)) if parts else None


async def _meaning(server: Server, document: Document, place: int) -> list[str]:
    """Return what the pages say of the rules that have findings at ``place``."""
    outcome = await server.outcome(root_of(document.path))
    found = [
        finding
        for finding in server.session.findings(outcome, document.path)
        if finding.span.start <= place <= finding.span.end
    ]
    return list(dict.fromkeys(map(_summary, found)))


def _summary(finding: Finding) -> str:
    head = f"**{finding.rule}** ({finding.code}): {_SUMMARIES[finding.rule]}"
    reason = harm(page(finding.rule))
    declined = f"No fix: {finding.fix_declined}" if finding.fix_declined else ""
    link = f"[Page of the rule]({rule_url(finding.rule)})"
    return "\n\n".join(filter(None, [head, reason, declined, link]))


async def _known(server: Server, document: Document, place: int) -> list[str]:
    """Return what the engine knows of the code at ``place``."""
    found = await server.inspection(document)
    texts = [] if found is None else facts.at(*found, document.path, place)
    return ["\n\n".join(texts)] if texts else []
