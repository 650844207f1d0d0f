"""What identifies a finding from one version of its file to the next.

That is its file, its rule and its statement; equal ones are numbered from the top of the file.
Moved lines, edits of other statements, comments, and all that formatters change (blanks, line ends,
last commas, parentheses, quotes) make no difference.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby

from fsdplint.files.lexing import TOKEN, LogicalLine, logical_lines
from fsdplint.finding import Finding, Span
from fsdplint.outcome import Outcome

# A longer statement is mostly other code than the finding's, whose edits are not the finding's.
_MAX_CODE = 200

_BLANKS = re.compile(r"(?:\s|\\(?=[\r\n]))+")
_INSIDE_BRACKETS = re.compile(r"(?<=[(\[{]) |,? (?=[)\]}])")
_LAST_COMMA = re.compile(r",\s*(?=[)\]}])")
_SPACING = re.compile(r"(?:[()\s]|\\(?=[\r\n]))+")
_NEEDLESS = re.compile(r"(?<!\w) | (?!\w)")


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a finding.

    Attributes:
        path: relative to the given directory, with forward slashes.
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
    """Return a unique fingerprint for each finding of ``outcome``: 32 hexadecimal digits.

    A finding has the same ones in a later version of its file (see the module), whatever files are
    checked with it.

    Args:
        root: the absolute directory that paths are taken relative to, ``outcome.base`` by default.
    """
    return {finding: known.fingerprint for finding, known in identities(outcome, root).items()}


def identities(outcome: Outcome, root: str | None = None) -> dict[Finding, Identity]:
    """Return the identity of each finding of ``outcome``, in its order; ``root`` as above."""
    seen: Counter[tuple[str, str, str]] = Counter()
    known: dict[Finding, Identity] = {}
    ordered = sorted(outcome.findings, key=lambda finding: finding.span)
    for path, findings in groupby(ordered, key=lambda finding: finding.span.path):
        shown = os.path.relpath(path, root or outcome.base).replace(os.sep, "/")
        statements = _Statements(outcome.sources[path].text)
        for finding in findings:
            first = Identity(shown, finding.rule, statements.at(finding.span), 1)
            equal = first.equal
            seen[equal] += 1
            known[finding] = replace(first, occurrence=seen[equal])
    return {finding: known[finding] for finding in outcome.findings}


def spelling(code: str) -> str:
    """Return a normal form of ``code`` that formatting does not change; it is not Python."""
    return _each(code, _spelled, lambda string: string.replace("'", '"'))


def _spelled(part: str) -> str:
    return _NEEDLESS.sub("", _SPACING.sub(" ", _LAST_COMMA.sub("", part)))


class _Statements:
    """The statements of a text, found by a place in them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = list(logical_lines(text))
        self.starts = [line.start for line in self.lines]

    def at(self, span: Span) -> str:
        """Return the code that identifies a finding at ``span``."""
        own = self.text[span.start : span.end]
        index = bisect_right(self.starts, span.start) - 1
        if index < 0 or _in_comment(self.lines[index], span.start):
            return _one_line(own)
        whole = self._without_comments(self.lines[index])
        return _one_line(whole if len(spelling(whole)) <= _MAX_CODE else own)

    def _without_comments(self, line: LogicalLine) -> str:
        ends = [line.start, *(end for _, end in line.comments)]
        starts = [*(start for start, _ in line.comments), line.end]
        return "".join(self.text[end:start] for end, start in zip(ends, starts, strict=True))


def _in_comment(line: LogicalLine, offset: int) -> bool:
    return any(start <= offset < end for start, end in line.comments)


def _one_line(code: str) -> str:
    """Return ``code`` on one line, unless its strings have several."""
    return _each(code, lambda part: _INSIDE_BRACKETS.sub("", _BLANKS.sub(" ", part)), str).strip()


def _each(code: str, outside: Callable[[str], str], string: Callable[[str], str]) -> str:
    """Return ``code`` with ``string`` applied to its strings and ``outside`` to the rest."""
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(code):
        if token.lastgroup == "string":
            parts += [outside(code[end : token.start()]), string(token[0])]
            end = token.end()
    return "".join([*parts, outside(code[end:])])
