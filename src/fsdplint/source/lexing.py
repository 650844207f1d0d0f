"""The few tokens of Python that decide what is code: comments, strings, brackets, line ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NEWLINE = re.compile(r"\r\n|\r|\n")

TOKEN = re.compile(
    r"""
      (?P<comment>\#[^\r\n]*)
    | (?P<string>\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)
               | '''(?:\\.|[^\\])*?(?:'''|\Z)
               | "(?:\\(?:\r\n|.)|[^\\"\r\n])*"?
               | '(?:\\(?:\r\n|.)|[^\\'\r\n])*'?)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<continuation>\\(?:\r\n|\r|\n))
    | (?P<newline>\r\n|\r|\n)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LogicalLine:
    """Physical lines that brackets, strings and backslashes make one, with their comments.

    Attributes:
        start: the offset of its first character.
        end: the offset after its line end.
        comments: the half-open offsets of each comment, ``#`` included.
        code: whether it holds more than blanks and a comment.
    """

    start: int
    end: int
    comments: tuple[tuple[int, int], ...]
    code: bool


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """The logical lines of ``text``, a blank line and a comment on its own being one each.

    This never fails, so comments are found in files that do not parse too.
    """
    start, depth = 0, 0
    comments: list[tuple[int, int]] = []
    for token in TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "comment":
            comments.append(token.span())
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "newline" and depth == 0:
            yield _logical_line(text, start, token.end(), comments)
            start, comments = token.end(), []
    if start < len(text):
        yield _logical_line(text, start, len(text), comments)


def _logical_line(text: str, start: int, end: int, comments: list[tuple[int, int]]) -> LogicalLine:
    code = text[start : comments[0][0] if comments else end].strip()
    return LogicalLine(start, end, tuple(comments), bool(code))
