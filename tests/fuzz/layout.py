"""The same tokens laid out otherwise: blanks, lines, comments, line ends, indentation."""

from __future__ import annotations

import io
import keyword
import tokenize
from dataclasses import dataclass
from random import Random

_LAYOUT = {
    tokenize.NL,
    tokenize.COMMENT,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_COMMENTS = ("# note", "# TODO: é ü", "#", "#: x", "# `fully_shard` above", "#!x")


@dataclass(frozen=True, slots=True)
class Laid:
    """A text with the offset where each token begins that is no layout.

    Attributes:
        mark: a byte order mark or nothing, which offsets do not count.
    """

    text: str
    starts: tuple[int, ...]
    mark: str = ""

    def index(self, offset: int) -> int | None:
        """Which token begins at ``offset``, None if none does."""
        return self.starts.index(offset) if offset in self.starts else None


def as_is(text: str) -> Laid:
    """``text``, which has no line end but ``\\n``, as it is."""
    lines = [0]
    for line in io.StringIO(text):
        lines.append(lines[-1] + len(line))
    tokens = [token for _, line in _lines(text) for token in line]
    return Laid(text, tuple(lines[t.start[0] - 1] + t.start[1] for t in tokens))


@dataclass(slots=True)
class _Style:
    """How one file is laid out."""

    indent: str
    newline: str
    wild: float
    random: Random

    def gap(self, bracketed: bool, needed: bool) -> str:
        """What stands between two tokens of a line."""
        if self.random.random() > self.wild:
            return " "
        if bracketed and self.random.random() < 0.4:
            comment = self.random.choice(("", "", " ", " " + self.random.choice(_COMMENTS)))
            return f"{comment}{self.newline}{self.random.choice(('', ' ', '    ', chr(9)))}"
        if self.random.random() < 0.1:
            return f" \\{self.newline}{self.random.choice(('', '  '))}"
        if not needed:
            return ""
        return self.random.choice((" ", "  ", "\t", " \x0c" if bracketed else " "))

    def blank(self) -> str:
        """A line without code, which may stand anywhere between two others."""
        return self.random.choice(("", "   ", "\x0c", self.indent + self.random.choice(_COMMENTS)))


def relaid(text: str, random: Random) -> Laid:
    """``text``, which Python printed, with the same tokens in another layout."""
    style = _Style(
        random.choice(("    ", "  ", "\t", " ", "   ", "        ")),
        random.choice(("\n", "\n", "\r\n", "\r\n", "\r")),
        random.choice((0.0, 0.05, 0.3)),
        random,
    )
    made, starts = "", list[int]()
    for depth, tokens in _lines(text):
        if made:
            made += style.newline
        if random.random() < style.wild:
            made += style.blank() + style.newline
        made = _laid(style, made + style.indent * depth, tokens, starts)
    made += style.newline if random.random() < 0.8 else ""
    return Laid(made, tuple(starts), "\ufeff" if random.random() < 0.1 else "")


_Line = tuple[int, list[tokenize.TokenInfo]]


def _lines(text: str) -> list[_Line]:
    """The logical lines of a file, each with its depth."""
    found: list[_Line] = []
    depth, current = 0, list[tokenize.TokenInfo]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type == tokenize.NEWLINE:
            found.append((depth, current))
            current = []
        elif token.type not in _LAYOUT:
            current.append(token)
    return found


def _laid(style: _Style, made: str, tokens: list[tokenize.TokenInfo], starts: list[int]) -> str:
    """``made`` with a logical line behind it; ``starts`` gets where its tokens begin."""
    brackets = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None:
            needed = _needs_space(before, token)
            if before.end != token.start or needed:
                made += style.gap(brackets > 0, needed)
            elif style.random.random() < style.wild / 3 and not _is_in_fstring(before, token):
                made += style.gap(brackets > 0, needed=False)
        starts.append(len(made))
        made += token.string
        if token.type == tokenize.OP:
            brackets += (token.string in "([{") - (token.string in ")]}")
    trailing = style.random.random() < style.wild / 2
    return made + (f"  {style.random.choice(_COMMENTS)}" if trailing else "")


def _is_in_fstring(before: tokenize.TokenInfo, token: tokenize.TokenInfo) -> bool:
    names = {tokenize.tok_name[before.type], tokenize.tok_name[token.type]}
    return any(name.startswith("FSTRING") for name in names)


def _needs_space(before: tokenize.TokenInfo, token: tokenize.TokenInfo) -> bool:
    if before.type == tokenize.NUMBER or keyword.iskeyword(before.string):
        return True
    if keyword.iskeyword(token.string):
        return True
    words = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
    return before.type in words and token.type in words
