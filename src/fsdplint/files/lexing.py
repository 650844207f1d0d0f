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


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines(text: str) -> list[str]:
    """Return the lines of ``text`` with their ends, as Python counts them.

    `str.splitlines` also splits at form feeds and other separators, which strings may hold.
    """
    return _LINE.findall(text)


def indented(text: str, indent: str) -> str:
    """Return ``text`` with ``indent`` before each line that is not blank and not in a string."""
    strings = [token.span() for token in TOKEN.finditer(text) if token.lastgroup == "string"]
    parts: list[str] = []
    start = 0
    for line in lines(text):
        moves = line.strip() and not any(first < start < end for first, end in strings)
        parts.append(indent + line if moves else line)
        start += len(line)
    return "".join(parts)


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
    """Yield the logical lines of ``text``; a blank line or a comment alone is one, too.

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
