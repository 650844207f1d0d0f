"""Suppression comments for all findings, as fixes that give a reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from fsdplint.files.file import SourceFile
from fsdplint.files.lexing import NEWLINE, LogicalLine, logical_lines
from fsdplint.finding import Edit, Finding, Fix, Safety, Span
from fsdplint.outcome import Outcome
from fsdplint.suppression.comments import NEVER_SUPPRESSED, UNUSED, directive, has_directive

# Kinds of files that have no comments.
NO_COMMENTS = (".json",)
# A comment that suppresses a comment is useless; these rules have separate fixes.
_LEFT = NEVER_SUPPRESSED | {UNUSED}


def with_comments(outcome: Outcome, reason: str) -> list[Finding]:
    """Return the findings; the first one on each statement has the comment as its fix.

    Those in a file that is not to be written, or has no comments, have none.

    Args:
        reason: what the comments say, in one line.
    """
    findings = []
    for path, inside in groupby(outcome.findings, key=lambda finding: finding.span.path):
        if path in outcome.linked or path.endswith(NO_COMMENTS):
            findings += [replace(finding, fix=None) for finding in inside]
        else:
            findings += _in_file(outcome.sources[path], list(inside), reason)
    return findings


def _in_file(source: SourceFile, findings: Sequence[Finding], reason: str) -> list[Finding]:
    """Return the findings of one file, with a comment as the first fix on each statement."""
    lines = list(logical_lines(source.text))
    starts = [line.start for line in lines]
    by_line: dict[int, list[Finding]] = {}
    left = []
    for finding in findings:
        if finding.rule in _LEFT:
            left.append(replace(finding, fix=None))
        else:
            by_line.setdefault(bisect_right(starts, finding.span.start) - 1, []).append(finding)
    for index, (first, *others) in by_line.items():
        names = list(dict.fromkeys(finding.rule for finding in (first, *others)))
        edit = _comment(source, lines[index], directive(names, reason))
        left.append(replace(first, fix=Fix("add a comment", Safety.SAFE, (edit,))))
        left += [replace(finding, fix=None) for finding in others]
    return left


def _comment(source: SourceFile, line: LogicalLine, comment: str) -> Edit:
    """Return the edit that adds ``comment`` after the statement, or above one with our comment.

    The last of a statement's lines is in no string and is not continued. A comment of ours takes
    all that follows it for its reason.
    """
    text = source.text[line.start : line.end]
    if line.comments and has_directive(source.text, line.comments[-1]):
        found = NEWLINE.search(source.text)
        indent = text[: len(text) - len(text.lstrip(" \t\f"))]
        above = f"{indent}{comment}{found.group() if found else chr(10)}"
        return Edit(Span(source.path, line.start, line.start), above)
    end = line.start + len(text.rstrip("\r\n"))
    return Edit(Span(source.path, end, end), f"  {comment}")
