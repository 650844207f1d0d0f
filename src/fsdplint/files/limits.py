"""Text that would take a parser minutes, its stack or all memory, and that hardly a person wrote.

LibCST recurses for every bracket and for every link of a chain such as ``a + b + c``, ``a.b.c``,
``f()()`` or ``a if b else c if d else e``, and copies at each level what is inside; brackets in a
pattern of ``case`` double its time, and braces double it twice. The effort
reckoned with here is in units of about 20 microseconds and 2 kilobytes: no clock is looked at, so
that the same file always comes to the same end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.files.lexing import TOKEN

_MAX_CHARACTERS = 2_000_000
_MAX_EFFORT = 250_000
_MAX_DEPTH = 200  # CPython's own limit on nested brackets
_MAX_CHAIN = 1_000
_MAX_ELIFS = 1_000
_MAX_CASES = 1_000
_MAX_DOUBLINGS = 14
_MAX_FORMAT = 50_000  # characters of an f-string
_NEAR = 4  # a quarter of a limit is near it, as no file of 7,067 in public code is

_OPEN, _END, _LINK, _EQUAL, _PART, _SYMBOL_IN_PART = 2, 4, 2, 2, 10, 4
_LINKS_SQUARED = 20  # links of a chain, squared, that are a unit

_WORDS = "and|or|not|in|is|if|else|yield|for"
# Names and blanks are passed over with the token behind them, there being so many.
_TOKEN = re.compile(
    rf"""(?: (?!(?=[aefilnoy])(?:{_WORDS}|elif|lambda)\b)\w+ | [ \t:]+ | =(?!=) )* (?:
    {TOKEN.pattern}
    | (?P<end>[,;])
    | (?P<link>[-+*/%@&|^~<>] | [=!]= | \.(?=\s*[^\W\d]) | (?:{_WORDS})\b)
    | (?P<lambda>lambda\b)
    | (?P<elif>elif\b)
    | . | \Z)
    """,
    TOKEN.flags,
)
_PATTERN = re.compile(r"^[ \t\f]*case\b(?=[^\r\n]*[(\[{])", re.MULTILINE)
_CASE = re.compile(r"^[ \t\f]*case\b[^\r\n]*:", re.MULTILINE)
_FORMATTED = re.compile(r".?[ft]r?[\"']", re.IGNORECASE | re.DOTALL)
_BRACES = re.compile(r"\{+|\}+")
_SYMBOL = re.compile(rf"[-+*/%@&|^~<>.(\[{{]|[=!]=|\b(?:{_WORDS}|lambda)\b")


def expect_parsable(text: str) -> bool:
    """Whether ``text`` is near what a parser can be trusted with.

    Raises:
        InvalidSyntax: its brackets are nested deeper than any Python takes them.
        TooDemanding: it would take too much.
    """
    if len(text) > _MAX_CHARACTERS:
        raise TooDemanding("is too large to be parsed")
    load = _load(text)
    doublings = (_doublings(text, case.end()) for case in _PATTERN.finditer(text))
    if max(doublings, default=0) > _MAX_DOUBLINGS:
        raise TooDemanding("has a pattern that is nested too deeply")
    cases = sum(1 for _ in _CASE.finditer(text))
    for number, most, what in (
        (load.elifs, _MAX_ELIFS, "elif branches"),
        (cases, _MAX_CASES, "cases"),
    ):
        if number > most:
            raise TooDemanding(f"has more than {most:,} {what}")
    if load.effort > _MAX_EFFORT:
        raise TooDemanding("is too large to be parsed")
    measures = (
        *((len(text), _MAX_CHARACTERS), (load.effort, _MAX_EFFORT), (load.deepest, _MAX_DEPTH)),
        *((load.longest, _MAX_CHAIN), (load.elifs, _MAX_ELIFS), (cases, _MAX_CASES)),
    )
    return any(_NEAR * number >= most for number, most in measures)


@dataclass(slots=True)
class _Load:
    """What a text puts on a parser, as far as it was read.

    Attributes:
        chains: how many links the chain has that is open in each bracket.
        lambdas: those of the statement; one may hold the next though a comma is between them.
        longest: the links of the longest chain.
        deepest: how many brackets were open at once.
    """

    effort: int
    chains: list[int] = field(default_factory=lambda: [0])
    lambdas: int = 0
    elifs: int = 0
    longest: int = 0
    deepest: int = 0

    def open(self, offset: int) -> None:
        self.effort += _OPEN + len(self.chains)
        self.chains[-1] += 1
        self.chains.append(0)
        self.deepest = max(self.deepest, len(self.chains) - 1)
        if self.deepest > _MAX_DEPTH:
            reason = f"brackets are nested more than {_MAX_DEPTH} deep, which Python does not allow"
            raise InvalidSyntax(reason, offset)

    def close(self) -> None:
        self.ended(self.chains.pop() if len(self.chains) > 1 else 0)

    def part_ends(self) -> None:
        """At a comma, or the end of a statement."""
        self.effort += _END
        self.ended(self.chains[-1])
        self.chains[-1] = 0

    def line_ends(self) -> None:
        if len(self.chains) == 1:
            self.part_ends()
            self.ended(self.lambdas)
            self.lambdas = 0

    def link(self) -> None:
        self.effort += _LINK
        self.chains[-1] += 1

    def ended(self, links: int) -> None:
        self.longest = max(self.longest, links)
        self.effort += _ended(links)


def _load(text: str) -> _Load:
    load = _Load(_EQUAL * text.count("="))
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "open":
            load.open(token.end() - 1)
        elif kind == "close":
            load.close()
        elif kind == "end":
            load.part_ends()
        elif kind == "newline":
            load.line_ends()
        elif kind == "link" or kind == "string":
            load.link()
            if kind == "string" and _FORMATTED.match(text, max(token.start("string") - 2, 0)):
                load.effort += _formatted(token["string"])
        elif kind == "lambda":
            load.effort += _LINK
            load.lambdas += 1
        elif kind == "elif":
            load.elifs += 1
    for links in (*load.chains, load.lambdas):
        load.ended(links)
    return load


def expect_short_formats(text: str) -> None:
    """Return if CPython's parser can be trusted with the f-strings of ``text``.

    It takes time that grows with the square of how long one is.

    Raises:
        TooDemanding: one is too long.
    """
    for token in TOKEN.finditer(text):
        if token.end() - token.start() <= _MAX_FORMAT or token.lastgroup != "string":
            continue
        if _FORMATTED.match(text, max(token.start("string") - 2, 0)):
            raise TooDemanding("has a format string that is too long")


def _ended(links: int) -> int:
    """The effort for a chain beyond that for its links."""
    if links > _MAX_CHAIN:
        raise TooDemanding(f"has a statement with a chain of more than {_MAX_CHAIN:,} operators")
    return links * links // _LINKS_SQUARED


def _formatted(string: str) -> int:
    """The effort for the parts in braces of an f-string."""
    counts = [len(_SYMBOL.findall(part)) for part in _parts(string)]
    return sum(_PART + _SYMBOL_IN_PART * links + _ended(links) for links in counts)


def _parts(string: str) -> Iterator[str]:
    """What stands in braces, and in no others."""
    depth = start = 0
    for braces in _BRACES.finditer(string):
        count = len(braces[0])
        if braces[0][0] == "}":
            if 0 < depth <= count:
                yield string[start : braces.start()]
            depth = max(depth - count, 0)
        elif depth or count % 2:  # two are one that is text
            start = start if depth else braces.end()
            depth += count if depth else 1
        if depth > _MAX_DEPTH:
            raise TooDemanding("has a format string that is nested too deeply")
    if depth:
        yield string[start:]


def _doublings(text: str, start: int) -> int:
    """How often a pattern from ``start`` on doubles the time, up to the end of its brackets."""
    opened: list[int] = []
    most = 0
    for token in TOKEN.finditer(text, start):
        if token.lastgroup == "open":
            opened.append(2 if token[0] == "{" else 1)
            most = max(most, sum(opened))
        elif token.lastgroup == "close" and opened:
            opened.pop()
        elif token.lastgroup == "newline" and not opened:
            break
        if most > _MAX_DOUBLINGS:
            break
    return most
