"""Text that would take a parser minutes, or its stack, and that no person wrote."""

from __future__ import annotations

import re

from fsdplint.source.lexing import TOKEN

_MAX_DEPTH = 200  # CPython's own limit on nested brackets
_MAX_OPERATORS = 3_000  # LibCST's time grows with the square of a chain: 2 s at this length
_MAX_ELIFS = 1_000

_DEEP = re.compile(rf"(?:[(\[{{][^()\[\]{{}}]*){{{_MAX_DEPTH}}}")
_OPERATORS = "+-*/%@&|^."
_OPERATOR = re.compile(
    rf"{TOKEN.pattern} | (?P<comma>,) | (?P<operator>[-+*/%@&|^]|\.(?=\s*[^\W\d]))", TOKEN.flags
)
_ELIF = re.compile(r"^[ \t\f]*elif\b", re.MULTILINE)


def beyond_limits(text: str) -> str | None:
    """Why ``text`` should not be parsed, in one line, or None."""
    if _DEEP.search(text) and _depth(text) > _MAX_DEPTH:
        return f"brackets are nested more than {_MAX_DEPTH} deep, which Python does not allow"
    if sum(map(text.count, _OPERATORS)) > _MAX_OPERATORS and _longest_chain(text) > _MAX_OPERATORS:
        return f"a statement has more than {_MAX_OPERATORS} operators"
    if text.count("elif") > _MAX_ELIFS and len(_ELIF.findall(text)) > _MAX_ELIFS:
        return f"there are more than {_MAX_ELIFS} elif branches"
    return None


def _depth(text: str) -> int:
    depth = deepest = 0
    for token in TOKEN.finditer(text):
        if token.lastgroup == "open":
            depth += 1
            deepest = max(deepest, depth)
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
    return deepest


def _longest_chain(text: str) -> int:
    """The most operators between two commas, brackets or ends of logical lines of one depth."""
    counts = [0]
    longest = 0
    for token in _OPERATOR.finditer(text):
        kind = token.lastgroup
        if kind == "operator":
            counts[-1] += 1
        elif kind == "open":
            counts.append(0)
        elif kind == "close" and len(counts) > 1:
            counts.pop()
        elif kind == "comma" or (kind == "newline" and len(counts) == 1):
            counts[-1] = 0
        longest = max(longest, counts[-1])
    return longest
