"""Code actions: fix, fix all, suppress, and explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from lsprotocol import types

from fsdplint.finding import Finding, Safety, Span
from fsdplint.outcome import Changes, Outcome
from fsdplint.server.analysis import commented
from fsdplint.server.diagnostics import diagnostic
from fsdplint.server.edits import difference, workspace_edit
from fsdplint.server.session import Session

EXPLAIN = "fsdplint.explain"
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.fsdplint"
KINDS = [types.CodeActionKind.QuickFix, FIX_ALL]


def wants(only: Sequence[types.CodeActionKind | str] | None, kind: str, *, listed: bool) -> bool:
    """True if an editor requests actions of ``kind``.

    Args:
        only: the kinds that it requests, each with all below it; None if it lists what there is.
        listed: the answer in that case.
    """
    if only is None:
        return listed
    names = [str(getattr(each, "value", each)) for each in only]
    return any(kind == name or kind.startswith(f"{name}.") or not name for name in names)


def quick_fixes(
    session: Session, outcome: Outcome, findings: Iterable[Finding], uri: str, reason: str
) -> Iterator[types.CodeAction]:
    """Yield for each finding its fix, a comment that suppresses it, and its page.

    The first two have no edit yet: `cure` reads what ends which finding.
    """
    for finding in findings:
        place = session.location(outcome, finding.span)
        if place is None:
            continue
        shown = diagnostic(finding, place, partial(session.location, outcome))
        for title, suppress, preferred in _cures(outcome, finding, reason):
            span = finding.span
            yield types.CodeAction(
                title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[shown],
                is_preferred=preferred or None,
                data=[uri, finding.rule, span.start, span.end, suppress],
            )
        title = f"Explain {finding.rule} ({finding.code})"
        yield types.CodeAction(
            title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            command=types.Command(title, EXPLAIN, arguments=[finding.rule]),
        )


def _cures(outcome: Outcome, finding: Finding, reason: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield what ends a finding: a title, whether it is a comment, and whether it is preferred."""
    if finding.fix is not None:
        title = f"{finding.fix.title[0].upper()}{finding.fix.title[1:]}"
        safe = finding.fix.safety is Safety.SAFE
        yield title if safe else f"{title} (unsafe fix)", False, safe
    if commented(outcome, finding, reason).fix is not None:
        yield f"Suppress {finding.rule} with a comment", True, False


class Cure(NamedTuple):
    """What a code action of `quick_fixes` ends, and how.

    Attributes:
        uri: the document that it was requested for.
        suppress: whether by a comment, else by the fix.
    """

    uri: str
    rule: str
    start: int
    end: int
    suppress: bool

    def finding(self, outcome: Outcome, path: str) -> Finding | None:
        """Return the finding of ``outcome`` that it ends."""
        span = Span(path, self.start, self.end)
        return next((f for f in outcome.findings if (f.rule, f.span) == (self.rule, span)), None)


def cure(action: types.CodeAction) -> Cure | None:
    """Return what an action ends, None if it is not of `quick_fixes`, or has its edit."""
    data = action.data
    if action.edit is not None or not isinstance(data, list) or len(data) != len(Cure._fields):
        return None
    return Cure(*data)


def fix_all(session: Session, changes: Changes, versioned: bool) -> types.CodeAction | None:
    """Return the action that makes ``changes``, None if there are none."""
    edit = edit_of(session, changes, versioned)
    title = "fsdplint: apply all safe fixes"
    return None if edit is None else types.CodeAction(title, kind=FIX_ALL, edit=edit)


def edit_of(session: Session, changes: Changes, versioned: bool) -> types.WorkspaceEdit | None:
    """Return the edit that makes ``changes``, None if there are none that can be made now."""
    edits = [edit for old, new in changes.files for edit in difference(old, new)]
    documents = (session.documents.get(old.path) for old, _ in changes.files)
    # Of a file that is not valid now, an older text was fixed.
    if not edits or not all(each is None or each.is_valid for each in documents):
        return None
    before = Outcome((), {old.path: old for old, _ in changes.files})
    return workspace_edit(session, before, edits, versioned)
