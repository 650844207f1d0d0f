"""The few tokens of Python that decide what is code: comments, strings, brackets, line ends.

Unlike ``tokenize`` this never fails, so comments are found in files that do not parse too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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


def comments(text: str) -> Iterator[tuple[int, int]]:
    """The half-open offsets of each comment, ``#`` included and line end excluded."""
    for token in TOKEN.finditer(text):
        if token.lastgroup == "comment":
            yield token.span()
