"""Text that is not parsed: it is not Python, or too demanding for the parser.

LibCST recurses for every bracket and for every link of a chain such as ``a + b + c``, ``a.b.c``,
``f()()`` or ``a if b else c if d else e``. A text that is deep enough overflows the native stack,
which ends the process, and much less takes minutes. One measure covers all of these: how deep the
tree of a statement can become, as its tokens say. It depends on no clock, so a file ends the same
way every time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fsdplint.files.lexing import TOKEN

MAX_CHARACTERS = 500_000  # they take LibCST ten seconds and a gigabyte
# On the stack that `fsdplint.process.stack.deep` provides, the parser survives several times this.
_MAX_DEPTH = 1_000
_MAX_BRACKETS = 200  # CPython's own limit
# In a pattern of `case` each bracket doubles LibCST's time, and each brace doubles it twice.
_MAX_PATTERN_BRACKETS = 10

_TOO_DEEP = "too deeply nested to parse"

_WORDS = "and|or|not|in|is|if|else|yield|for"
_LINK = rf"[-+*/%@&|^~<>] | [=!]= | \.(?=\s*[^\W\d]) | \b(?:{_WORDS})\b"
# Names and blanks are matched together with the token behind them, since there are so many.
_TOKEN = re.compile(
    rf"""(?: (?!(?=[acefilnoy])(?:{_WORDS}|lambda|case|elif)\b)\w+ | [ \t:]+ | =(?!=) )* (?:
    {TOKEN.pattern}
    | (?P<end>[,;])
    | (?P<link>{_LINK})
    | (?P<lambda>lambda\b)
    | (?P<branch>(?:elif|case)\b)
    | . | \Z)
    """,
    TOKEN.flags,
)
_FORMATTED = re.compile(r".?[ft]r?[\"']", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"\{[^{}]*")
_FIELD_LINK = re.compile(rf"{_LINK} | [(\[] | \blambda\b", re.VERBOSE)


class InvalidSyntax(Exception):
    """A file that is not Python, with the character offset where the parser gave up."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class TooDemanding(Exception):
    """Text that would take minutes, or the process's stack or memory; the message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def expect_parsable(text: str) -> None:
    """Return if the parser can be trusted with ``text``.

    Raises:
        InvalidSyntax: its brackets are nested deeper than Python allows.
        TooDemanding: it would take the parser too much.
    """
    if len(text) > MAX_CHARACTERS:
        raise TooDemanding("too large to parse")
    nesting = _Nesting()
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                nesting.open(token.end() - 1)
            case "close":
                nesting.close()
            case "end":
                nesting.end_part()
            case "newline":
                nesting.end_line()
            case "link":
                nesting.link()
            case "string":
                nesting.link(1 + _links_in_fields(token))
            case "lambda" | "branch":
                nesting.unended[token.lastgroup] += 1
                if token["branch"] == "case":
                    nesting.most_brackets = _MAX_PATTERN_BRACKETS
        if nesting.depth + max(nesting.unended.values()) > _MAX_DEPTH:
            raise TooDemanding(_TOO_DEEP)


@dataclass(slots=True)
class _Nesting:
    """The possible depth of a statement's tree at one of its tokens.

    Attributes:
        chains: how many links the chain in each open bracket has, the outermost first.
        depth: what these add up to.
        unended: lambdas of the statement, and elifs and cases of the text, which no comma ends.
        most_brackets: how many may be open at once.
    """

    chains: list[int] = field(default_factory=lambda: [0])
    depth: int = 0
    unended: dict[str, int] = field(default_factory=lambda: {"lambda": 0, "branch": 0})
    most_brackets: int = _MAX_BRACKETS

    def link(self, links: int = 1) -> None:
        self.chains[-1] += links
        self.depth += links

    def open(self, offset: int) -> None:
        if len(self.chains) > _MAX_BRACKETS:
            raise InvalidSyntax(f"too many nested brackets: Python allows {_MAX_BRACKETS}", offset)
        if len(self.chains) > self.most_brackets:
            raise TooDemanding(_TOO_DEEP)
        self.link()
        self.chains.append(0)

    def close(self) -> None:
        if len(self.chains) > 1:
            self.depth -= self.chains.pop()

    def end_part(self) -> None:
        """End the chain at a comma, or at the end of a statement."""
        self.depth -= self.chains[-1]
        self.chains[-1] = 0

    def end_line(self) -> None:
        if len(self.chains) == 1:
            self.end_part()
            self.unended["lambda"] = 0
            self.most_brackets = _MAX_BRACKETS


def _links_in_fields(token: re.Match[str]) -> int:
    """Return the links of the longest chain in a string's fields, 0 if it is no f-string."""
    if not _FORMATTED.match(token.string, max(token.start("string") - 2, 0)):
        return 0
    fields = _FIELD.findall(token["string"])
    return max((len(_FIELD_LINK.findall(part)) for part in fields), default=0)
