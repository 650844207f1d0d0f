"""Edits as values: applying them to a text, and choosing fixes that do not touch each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsdplint.finding import Edit, Finding


def apply(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with every edit made; all spans speak of ``text`` as it is.

    Insertions at one place keep their order, and stand before a replacement that begins there.

    Raises:
        ValueError: two edits overlap, or one reaches outside the text.
    """
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end)):
        if not position <= edit.span.start <= edit.span.end <= len(text):
            raise ValueError(f"edit at {edit.span} overlaps another or leaves the text")
        parts += text[position : edit.span.start], edit.text
        position = edit.span.end
    return "".join([*parts, text[position:]])


def overlap(one: Edit, other: Edit) -> bool:
    """Whether ``apply`` could not make both edits."""
    a, b = one.span, other.span
    return a.path == b.path and a.start < b.end and b.start < a.end


def touch(one: Edit, other: Edit) -> bool:
    """Whether two edits overlap or are adjacent, so that their order would matter."""
    a, b = one.span, other.span
    return a.path == b.path and a.start <= b.end and b.start <= a.end


def select(findings: Iterable[Finding]) -> list[Finding]:
    """Those of ``findings`` with fixes that can be applied together.

    The later in a file goes first: of two statements moved below the same line, the second is
    there already when the first arrives above it, and their order is kept.
    """
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for finding in sorted(findings, key=lambda finding: finding.span, reverse=True):
        edits: Sequence[Edit] = finding.fix.edits if finding.fix else ()
        if edits and not any(touch(edit, other) for edit in edits for other in taken):
            chosen.append(finding)
            taken += edits
    return chosen[::-1]
