"""Code actions: fix, fix all, suppress, and explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lsprotocol import types

from fsdplint.finding import Finding, Fix, Safety
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
    session: Session, outcome: Outcome, findings: Iterable[Finding], reason: str, versioned: bool
) -> Iterator[types.CodeAction]:
    """Yield for each finding its fix, a comment that suppresses it, and its page."""
    for finding in findings:
        place = session.location(outcome, finding.span)
        if place is None:
            continue
        shown = diagnostic(finding, place, partial(session.location, outcome))
        comment = commented(outcome, finding, reason).fix
        for title, fix, preferred in _fixes(finding, comment):
            edit = workspace_edit(session, outcome, fix.edits, versioned)
            if edit is not None:
                yield types.CodeAction(
                    title,
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[shown],
                    edit=edit,
                    is_preferred=preferred or None,
                )
        title = f"Explain {finding.rule} ({finding.code})"
        yield types.CodeAction(
            title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            command=types.Command(title, EXPLAIN, arguments=[finding.rule]),
        )


def _fixes(finding: Finding, comment: Fix | None) -> Iterator[tuple[str, Fix, bool]]:
    """Yield the changes that end a finding: a title, the edits, and whether it is the best one."""
    if finding.fix is not None:
        title = f"{finding.fix.title[0].upper()}{finding.fix.title[1:]}"
        safe = finding.fix.safety is Safety.SAFE
        yield title if safe else f"{title} (unsafe fix)", finding.fix, safe
    if comment is not None:
        yield f"Suppress {finding.rule} with a comment", comment, False


def fix_all(session: Session, changes: Changes, versioned: bool) -> types.CodeAction | None:
    """Return the action that makes ``changes``, None if there are none."""
    edits = [edit for old, new in changes.files for edit in difference(old, new)]
    if not edits:
        return None
    before = Outcome((), {old.path: old for old, _ in changes.files})
    return types.CodeAction(
        "Apply all safe fixes of fsdplint",
        kind=FIX_ALL,
        edit=workspace_edit(session, before, edits, versioned),
    )
