"""The words of a shell script: quotes, expansions, arrays and here-documents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

BLANK = re.compile(r"(?:[ \t]|\\(?:\r\n|\n|\r))+")
LINE_END = re.compile(r"\r\n|\n|\r")
COMMENT = re.compile(r"#[^\r\n]*")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>]+")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[0-9@*#?$!-])", re.ASCII)
_ARRAY = re.compile(r"\$\{([A-Za-z_]\w*)\[@\]\}", re.ASCII)
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?=")
_COMPUTES = re.compile(r"=|\+\+|--")
_CONTINUED = re.compile(r"\\(?:\r\n|\n|\r)")
_ESCAPED = re.compile(r'\\(["$`\\])')
_IN_QUOTES = re.compile(r"(?:[^\"\\$`]|\\.)+", re.DOTALL)
_C_QUOTES = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_QUOTE = re.compile(r"[^']*'")
_BACKQUOTE = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_]\w*)\2")
_ENDS = {"(": ")", "{": "}"}
DEEPEST = 50
"""Levels of nested substitutions; handwritten scripts have three."""

Heredocs = list[tuple[str, bool]]
"""Delimiters, each with whether tabs may precede it."""


class NotUnderstoodError(Exception):
    """The text is not a shell script, or uses syntax that this reader does not know."""


class Many(Enum):
    """An expansion that may yield any number of words."""

    MANY = auto()


MANY = Many.MANY


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name}`.

    Attributes:
        quoted: whether it stays one word whatever its value is.
    """

    name: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Array:
    """`${name[@]}`."""

    name: str


@dataclass(frozen=True, slots=True)
class Elements:
    """`(…)` after `name=`."""

    words: tuple[Word, ...]


Part = str | Variable | Array | Elements | Many | None
"""Part of a word: text, a variable, any number of words, or None for an unknown part of one."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word from ``start`` up to ``end``."""

    start: int
    end: int
    parts: tuple[Part, ...]
    quoted: bool = False

    @property
    def literal(self) -> str | None:
        """The text of the word, None if it has an expansion."""
        texts = [part for part in self.parts if isinstance(part, str)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    @property
    def is_many(self) -> bool:
        """Whether it may expand to any number of words."""
        return any(isinstance(part, (Many, Array, Elements)) for part in self.parts)


@dataclass
class Reader:
    """Reads words at a position of the text.

    Attributes:
        at: the position.
        touched: variables that expansions and arithmetic may set, each with its place.
    """

    text: str
    at: int = 0
    touched: list[tuple[str, int]] = field(default_factory=list)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the match of a pattern at the position."""
        return pattern.match(self.text, self.at)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move past the match of a pattern at the position, and return it."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def word(self) -> Word:
        """Read the word at the position.

        Raises:
            NotUnderstoodError: there is none.
        """
        text, start = self.text, self.at
        parts: list[Part] = []
        quoted = False
        while self.at < len(text):
            at, sign = self.at, text[self.at]
            if found := self.take(_PLAIN):
                parts.append(found[0])
            elif self.take(_CONTINUED):
                continue
            elif sign == "\\":
                parts.append(text[at + 1 : at + 2])
                quoted, self.at = True, min(at + 2, len(text))
            elif sign == "'":
                end = _end_of(_QUOTE, text, at)
                parts.append(text[at + 1 : end])
                quoted, self.at = True, end + 1
            elif sign == '"':
                parts += self._double_quoted()
                quoted = True
            elif sign in "$`":
                parts.append(self._expansion(quoted=False))
            elif sign == "(" and at > start and text[at - 1] == "=":
                parts.append(self._array())
            elif sign in "<>" and text.startswith("(", at + 1):
                self.at = skip(text, at + 1)
                parts.append(None)
            else:
                break
        if self.at == start:
            raise NotUnderstoodError(f"{text[start : start + 1]!r} is not a word")
        return Word(start, self.at, tuple(parts), quoted)

    def arithmetic(self) -> None:
        """Skip `((…))` at the position, which may set every variable that it names."""
        start = self.at
        self.at = skip(self.text, start)
        self._touch_names(start)

    def _touch_names(self, start: int) -> None:
        for name in NAME.finditer(self.text, start, self.at):
            self.touched.append((name[0], name.start()))

    def _double_quoted(self) -> list[Part]:
        text = self.text
        self.at += 1
        parts: list[Part] = [""]
        while self.at < len(text) and text[self.at] != '"':
            if found := self.take(_IN_QUOTES):
                plain = _ESCAPED.sub(r"\1", found[0])
                parts.append(re.sub(r"\\(?:\r\n|\n)", "", plain))
            elif text[self.at] in "$`":
                parts.append(self._expansion(quoted=True))
            else:
                raise NotUnderstoodError("a quote")
        if self.at >= len(text):
            raise NotUnderstoodError("a quote without an end")
        self.at += 1
        return parts

    def _expansion(self, *, quoted: bool) -> Part:
        """Read an expansion, which starts with `$` or a backquote."""
        text, at = self.text, self.at
        if text[at] == "`":
            self.at = _end_of(_BACKQUOTE, text, at) + 1
            return None if quoted else MANY
        if found := self.take(_PARAMETER):
            name = found[1] or found[2]
            if name:
                return Variable(name, quoted)
            return MANY if found[0] in ("$@", "$*") else None
        following = text[at + 1 : at + 2]
        if following == "'" and not quoted:
            if not self.take(_C_QUOTES):
                raise NotUnderstoodError("a quote without an end")
            return None
        if following in ("(", "{"):
            return self._bracketed(following, quoted=quoted)
        self.at += 1
        return "$" if following != '"' else None

    def _bracketed(self, bracket: str, *, quoted: bool) -> Part:
        """Read `$(…)`, `$((…))` or `${…}`."""
        at = self.at
        self.at = skip(self.text, at + 1, quoted=quoted and bracket == "{")
        inside = self.text[at : self.at]
        if inside.startswith("$((") and _COMPUTES.search(inside):
            self._touch_names(at)
        if found := _DEFAULT.match(inside):
            self.touched.append((found[1], at))
        if array := _ARRAY.fullmatch(inside):
            return Array(array[1])
        several = "[@]" in inside or "[*]" in inside or inside[2:3] in ("@", "*")
        return MANY if several or (not quoted and _may_be_gone(inside)) else None

    def _array(self) -> Elements:
        """Read `(…)` after an assignment."""
        self.at += 1
        words: list[Word] = []
        while self.at < len(self.text):
            if self.take(BLANK) or self.take(LINE_END) or self.take(COMMENT):
                continue
            if self.text[self.at] == ")":
                self.at += 1
                return Elements(tuple(words))
            words.append(self.word())
        raise NotUnderstoodError("an array without an end")


def skip(text: str, at: int, *, quoted: bool = False) -> int:
    """Return the end of what the bracket at ``at`` opens, with the quotes and brackets in it.

    Args:
        quoted: whether it is within double quotes.

    Raises:
        NotUnderstoodError: it has no end.
    """
    inside: list[str] = []
    heredocs: Heredocs = []
    while at < len(text):
        sign, last = text[at], inside[-1] if inside else ""
        in_code = last == ")"
        if sign == "\\":
            at += 1
        elif sign == "#" and in_code and text[at - 1] in " \t\r\n(":
            end = LINE_END.search(text, at)
            at = end.start() - 1 if end else len(text)
        elif sign == "'" and last == "}" and (quoted or '"' in inside):
            # Whether it is a quote depends on the operator.
            raise NotUnderstoodError("a quote in an expansion in quotes")
        elif sign == "'" and last != '"':
            at = _end_of(_QUOTE, text, at)
        elif in_code and text.startswith("<<<", at):
            at += 2
        elif in_code and (found := _HEREDOC.match(text, at)):
            heredocs.append((found[3], found[1] == "-"))
            at = found.end() - 1
        elif heredocs and in_code and (found := LINE_END.match(text, at)):
            at = end_of_heredocs(text, found.end(), heredocs) - 1
            heredocs = []
        elif sign == last:
            inside.pop()
        elif sign == '"':
            inside.append('"')
        elif sign in _ENDS and (last != '"' or text[at - 1] == "$"):
            inside.append(_ENDS[sign])
        elif sign == "`":
            at = _end_of(_BACKQUOTE, text, at)
        at += 1
        if not inside:
            return at
        if len(inside) > DEEPEST:
            raise NotUnderstoodError("too deep")
    raise NotUnderstoodError("a bracket without an end")


def end_of_heredocs(text: str, at: int, heredocs: Heredocs) -> int:
    """Return the end of the here-documents whose text starts at ``at``.

    Raises:
        NotUnderstoodError: one of them has no end.
    """
    for delimiter, tabs in heredocs:
        while True:
            if at >= len(text):
                raise NotUnderstoodError("a here-document without an end")
            end = LINE_END.search(text, at)
            line = text[at : end.start() if end else len(text)]
            at = end.end() if end else len(text)
            if (line.lstrip("\t") if tabs else line) == delimiter:
                break
    return at


def _end_of(quoted: re.Pattern[str], text: str, at: int) -> int:
    """Return the place of the quote that ends what the one at ``at`` begins."""
    found = quoted.match(text, at + 1)
    if found is None:
        raise NotUnderstoodError(f"{text[at]} without an end")
    return found.end() - 1


def _may_be_gone(expansion: str) -> bool:
    """Return whether an unquoted `$(…)` or `${…}` is likely to yield no word, or several."""
    return ":+" in expansion or "+" in expansion[:3]
