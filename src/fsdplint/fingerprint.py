"""What a finding is known by from one version of its file to the next.

That is its file, its rule and its statement; equal ones are counted from the top of the file. Lines
that move, edits of other statements, comments, and blanks, line ends and last commas as formatters
set them make no difference.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from fsdplint.finding import Finding, Span
from fsdplint.outcome import Outcome
from fsdplint.source.lexing import TOKEN, LogicalLine, logical_lines

# A longer statement is mostly other code than the finding's, whose edits are not the finding's.
_MAX_CODE = 200

_BLANKS = re.compile(r"(?:\s|\\(?=[\r\n]))+")
_INSIDE_BRACKETS = re.compile(r"(?<=[(\[{]) |,? (?=[)\]}])")
_NEEDLESS = re.compile(r"(?<!\w) | (?!\w)|,(?= ?[)\]}])")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a finding is known by.

    Attributes:
        path: relative to the directory that was asked for, with forward slashes.
        rule: the rule's name.
        code: the statement, or of a long one only the finding's own part, on one line.
        occurrence: which of the equal ones in the file, from 1.
    """

    path: str
    rule: str
    code: str
    occurrence: int

    @property
    def equal(self) -> tuple[str, str, str]:
        """What equal ones have in common: path, rule and code however it is formatted."""
        return self.path, self.rule, spelling(self.code)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, the same for any formatting of the code."""
        parts = (*self.equal, str(self.occurrence))
        return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def fingerprints(outcome: Outcome, root: str | None = None) -> dict[Finding, str]:
    """32 hexadecimal digits for each finding of ``outcome``, in its order, no two the same.

    A finding has the same ones in a later version of its file (see the module), whatever files are
    checked with it.

    Args:
        root: the absolute directory that paths are taken relative to, ``outcome.base`` by default.
    """
    return {finding: known.fingerprint for finding, known in identities(outcome, root).items()}


def identities(outcome: Outcome, root: str | None = None) -> dict[Finding, Identity]:
    """What each finding of ``outcome`` is known by, in its order; ``root`` as above."""
    files: dict[str, _Statements] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    known: dict[Finding, Identity] = {}
    for finding in sorted(outcome.findings, key=lambda finding: finding.span):
        path = finding.span.path
        if path not in files:
            files[path] = _Statements(outcome.sources[path].text)
        code = files[path].at(finding.span)
        equal = (path, finding.rule, spelling(code))
        seen[equal] += 1
        shown = os.path.relpath(path, root or outcome.base).replace(os.sep, "/")
        known[finding] = Identity(shown, finding.rule, code, seen[equal])
    return {finding: known[finding] for finding in outcome.findings}


def spelling(code: str) -> str:
    """``code`` without the blanks, line ends and commas that a formatter puts in or takes out."""
    return _outside_strings(code, lambda part: _NEEDLESS.sub("", _BLANKS.sub(" ", part)))


class _Statements:
    """The statements of a text, found by a place in them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = list(logical_lines(text))
        self.starts = [line.start for line in self.lines]

    def at(self, span: Span) -> str:
        """The code that a finding at ``span`` is known by."""
        own = self.text[span.start : span.end]
        index = bisect_right(self.starts, span.start) - 1
        if index < 0 or _in_comment(self.lines[index], span.start):
            return _one_line(own)
        whole = self._without_comments(self.lines[index])
        return _one_line(whole) if len(spelling(whole)) <= _MAX_CODE else spelling(own)[:_MAX_CODE]

    def _without_comments(self, line: LogicalLine) -> str:
        ends = [line.start, *(end for _, end in line.comments)]
        starts = [*(start for start, _ in line.comments), line.end]
        return "".join(self.text[end:start] for end, start in zip(ends, starts, strict=True))


def _in_comment(line: LogicalLine, offset: int) -> bool:
    return any(start <= offset < end for start, end in line.comments)


def _one_line(code: str) -> str:
    """``code`` as people read it, on one line where its strings are."""
    return _outside_strings(
        code, lambda part: _INSIDE_BRACKETS.sub("", _BLANKS.sub(" ", part))
    ).strip()


def _outside_strings(code: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(code):
        if token.lastgroup == "string":
            parts += [change(code[end : token.start()]), token[0]]
            end = token.end()
    return "".join([*parts, change(code[end:])])
