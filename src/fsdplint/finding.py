"""What a rule reports and a reader sees: findings, their evidence and their fixes, as values.

Positions are half-open character offsets into the decoded text of a file (no byte order mark, line
endings as they stand), so that a span is also the place an edit splices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum


class Severity(str, Enum):
    """SARIF's levels: error is wrong training, a hang or a crash; warning is memory or speed."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    def is_at_least(self, other: Severity) -> bool:
        """Return whether this is as severe as ``other``, or more."""
        order = list(Severity)
        return order.index(self) <= order.index(other)


class Safety(str, Enum):
    """Whether the fix of one finding may be applied without being read.

    It is safe where it is certain, on every path and for every value that can be there, that the
    program goes on to run and trains as its author evidently meant; otherwise it is unsafe, and
    someone should look at it.
    """

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters ``start`` up to, but not including, ``end`` of the file at ``path``."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place that makes a finding true, with what happens there in a few words."""

    span: Span
    note: str


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the text at ``span`` by ``text``; an empty span inserts."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A set of edits that belong together: all are applied or none is.

    Attributes:
        title: a verb phrase, e.g. "build the optimizer after the last `fully_shard`".
        edits: in files that may be others than the finding's.
    """

    title: str
    safety: Safety
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken contract at ``span``, true because of ``evidence``.

    Attributes:
        rule: the kebab-case name, e.g. "direct-forward".
        code: the short handle, e.g. "FSD302".
        label: what the code under ``span`` does, for the code frame's caret line.
        evidence: the other places, in the order the program reaches them, across files.
        fix: the edit that cures it, or None with the reason in ``fix_declined``.
    """

    rule: str
    code: str
    severity: Severity
    message: str
    span: Span
    label: str = ""
    evidence: tuple[Evidence, ...] = field(default=())
    fix: Fix | None = None
    fix_declined: str = ""

    @property
    def paths(self) -> frozenset[str]:
        """The files that it shows or edits."""
        edits = [edit.span for edit in self.fix.edits] if self.fix else []
        spans = [self.span, *(evidence.span for evidence in self.evidence), *edits]
        return frozenset(span.path for span in spans)


def relocated(finding: Finding, on_disk: Callable[[str], str]) -> Finding:
    """Return a finding with its places in the files that ``on_disk`` gives for their paths."""

    def at(span: Span) -> Span:
        return replace(span, path=on_disk(span.path))

    if all(on_disk(path) == path for path in finding.paths):
        return finding
    evidence = tuple(replace(each, span=at(each.span)) for each in finding.evidence)
    fix = finding.fix
    if fix is not None:
        fix = replace(fix, edits=tuple(replace(e, span=at(e.span)) for e in fix.edits))
    return replace(finding, span=at(finding.span), evidence=evidence, fix=fix)


# The entry that is the top level of a file.
TOP_LEVEL = "<module>"


@dataclass(frozen=True, slots=True, order=True)
class EarlyStop:
    """A reason why part of a program was not analyzed, so that findings may be missing.

    Attributes:
        path: the absolute path of the file that the entry is in.
        entry: where the program starts: a function, ``Class.method`` or `TOP_LEVEL`.
        reason: what stopped the analysis, as a noun phrase or a clause.
    """

    path: str
    entry: str
    reason: str
