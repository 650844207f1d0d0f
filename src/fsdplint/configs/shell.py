"""Shell scripts as commands whose words know their place in the text. Nothing is executed.

A reader of what scripts that launch training are made of, after the grammar of Bash: quotes,
expansions, comments, here-documents and compound commands. What it does not know makes a word
unknown, and a script that does not add up is not understood as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from fsdplint.files.lexing import LogicalLine

_BLANK = re.compile(r"(?:[ \t]|\\(?:\r\n|\n|\r))+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_COMMENT = re.compile(r"#[^\r\n]*")
_REDIRECTION = re.compile(r"[0-9]*(?:&>>|&>|<<<|<<-?|>>|>\||>&|<&|<>|<(?!\()|>(?!\())")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()]")
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[0-9@*#?$!-])", re.ASCII)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_]\w*)\2")
_ENDS = {"(": ")", "{": "}"}
_ARRAY = re.compile(r"\$\{([A-Za-z_]\w*)\[@\]\}", re.ASCII)
_PLAIN_FLAGS = re.compile(r"-[arx]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?\+?=")
_DEEPEST = 50
"""Levels of substitutions inside of each other; scripts of people have three."""
_LONGEST = 10_000
"""Characters of a variable; a few doublings make more."""
_OPENS = frozenset({"if", "while", "until", "for", "select", "case", "{"})
_CLOSES = {"fi": "if", "done": "do", "esac": "case", "}": "{"}
_GOES_ON = frozenset({"then", "else", "elif", "do", "!", "time"})


class NotUnderstoodError(Exception):
    """The text is no shell script, or one that this reader does not know."""


class Many(Enum):
    """An expansion that may be any number of words."""

    MANY = auto()


MANY = Many.MANY


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name}`.

    Attributes:
        quoted: whether it stays one word whatever it is.
    """

    name: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Array:
    """`${name[@]}`."""

    name: str


@dataclass(frozen=True, slots=True)
class Elements:
    """`(…)` behind `name=`."""

    words: tuple[Word, ...]


Part = str | Variable | Array | Elements | Many | None
"""Of a word: a text, a variable, any number of words, or (None) an unknown part of one word."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word from ``start`` up to ``end``."""

    start: int
    end: int
    parts: tuple[Part, ...]
    quoted: bool = False

    @property
    def literal(self) -> str | None:
        """The text that it is, None if an expansion decides that."""
        texts = [part for part in self.parts if isinstance(part, str)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    @property
    def is_many(self) -> bool:
        """Whether it may be any number of words."""
        return any(isinstance(part, (Many, Array, Elements)) for part in self.parts)


class Scope(Enum):
    """How a command is reached."""

    ALWAYS = auto()
    MAYBE = auto()
    IN_FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words but for redirections.

    Attributes:
        assigns: how many of the first words are assignments.
        scope: whether it runs in each run of the script that comes to the place, in this shell.
    """

    words: tuple[Word, ...]
    assigns: int
    scope: Scope

    @property
    def start(self) -> int:
        """The place of its first word."""
        return self.words[0].start

    @property
    def end(self) -> int:
        """The end of its last word."""
        return self.words[-1].end

    @property
    def name(self) -> str:
        """The literal word that is run, "" if there is none."""
        rest = self.words[self.assigns :]
        return (rest[0].literal or "") if rest else ""


@dataclass(frozen=True, slots=True)
class Write:
    """A place that sets a variable.

    Attributes:
        value: what it is set to, None if that is unknown.
        certain: whether nothing decides if it is set.
        elements: the words of an array, None if it is none or unknown.
    """

    name: str
    at: int
    value: Word | None
    certain: bool
    exported: bool = False
    elements: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class _History:
    """What sets a variable, in the order of the text, each with its text if that is known."""

    writes: list[Write] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)

    def last_before(self, at: int) -> int | None:
        """Return the index of what certainly set it last before a place, None if none did."""
        index = bisect_left(self.writes, at, key=lambda write: write.at)
        return index - 1 if index else None


@dataclass(frozen=True)
class Script:
    """A script that was understood.

    Attributes:
        comments: the places of its comments.
        lines: its logical lines.
    """

    text: str
    commands: tuple[Command, ...]
    comments: tuple[tuple[int, int], ...]
    lines: tuple[LogicalLine, ...]
    _variables: dict[str, _History]
    _uncertain: frozenset[str]
    _barriers: tuple[int, ...]

    def text_of(self, word: Word, at: Command) -> str | Many | None:
        """Return the text of a word where ``at`` runs, MANY if it may be several, None if unknown.

        An unquoted variable is taken for one word: those who write `--port $PORT` mean that.
        """
        if word.is_many:
            return MANY
        texts: list[str] = []
        for part in word.parts:
            text = self._part(part, at)
            if text is None:
                return None
            texts.append(text)
        return "".join(texts)

    def value(self, name: str, at: Command) -> tuple[Write, str] | None:
        """Return what certainly set a variable last before ``at`` runs, with the literal text."""
        found = self._last(name, at)
        return None if found is None or found[1] is None else (found[0], found[1])

    def elements(self, word: Word, at: Command) -> tuple[Word, ...] | None:
        """Return the words of the array that a word is, None if they are unknown."""
        parts = [part for part in word.parts if part != ""]  # a quote begins with that
        part = parts[0] if len(parts) == 1 else None
        found = self._last(part.name, at) if isinstance(part, Array) else None
        return found[0].elements if found else None

    def _last(self, name: str, at: Command) -> tuple[Write, str | None] | None:
        history = self._variables.get(name)
        index = history.last_before(at.start) if history else None
        if history is None or index is None or name in self._uncertain:
            return None
        write, text = history.writes[index], history.texts[index]
        if at.scope is Scope.IN_FUNCTION and len(history.writes) > 1:
            return None
        barriers = bisect_left(self._barriers, write.at), bisect_left(self._barriers, at.start)
        return (write, text) if barriers[0] == barriers[1] else None

    def _part(self, part: Part, at: Command) -> str | None:
        if not isinstance(part, Variable):
            return part if isinstance(part, str) else None
        found = self.value(part.name, at)
        if found is None or not (part.quoted or _is_one_word(found[1])):
            return None
        return found[1]

    def _set(self, write: Write) -> None:
        """Add a write behind all others, with what the others make of its value."""
        text = None
        if write.value is not None:
            # Nothing decides whether it is set, nor then what is expanded.
            text = self.text_of(write.value, Command((write.value,), 0, Scope.ALWAYS))
        known = isinstance(text, str) and len(text) < _LONGEST
        history = self._variables.setdefault(write.name, _History())
        history.writes.append(write)
        history.texts.append(str(text) if known else None)


def _is_one_word(text: str) -> bool:
    return text != "" and not re.search(r"[\s*?\[]", text)


def parse(text: str, *, in_one_shell: bool = True) -> Script:
    """Return the script that a text is.

    Args:
        in_one_shell: whether its commands follow each other; what sets a variable in one says
            nothing of another if they do not.

    Raises:
        NotUnderstoodError: it is none, or one that is not understood.
    """
    return _Parser(text, in_one_shell).script()


@dataclass
class _Parser:
    text: str
    in_one_shell: bool
    at: int = 0
    commands: list[Command] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)
    lines: list[LogicalLine] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    heredocs: list[tuple[str, bool]] = field(default_factory=list)
    # The command that is being read.
    words: list[Word] = field(default_factory=list)
    chained: bool = False
    defines: bool = False
    line: int = 0
    on_line: list[tuple[int, int]] = field(default_factory=list)

    def script(self) -> Script:
        if "\0" in self.text:
            raise NotUnderstoodError("a NUL")
        while self.at < len(self.text):
            self.step()
        self.end_command(";")
        if self.stack or self.heredocs:
            raise NotUnderstoodError("the end comes early")
        self.end_line()
        self.writes.sort(key=lambda write: write.at)
        barriers = (c.start for c in self.commands if c.name in ("eval", "source", "."))
        script = Script(
            self.text,
            tuple(self.commands),
            tuple(self.comments),
            tuple(self.lines),
            {},
            frozenset(write.name for write in self.writes if not write.certain),
            tuple(barriers),
        )
        for write in self.writes:
            script._set(write)
        return script

    def step(self) -> None:
        text, at = self.text, self.at
        if found := _BLANK.match(text, at):
            self.at = found.end()
        elif found := _LINE_END.match(text, at):
            self.end_command(";")
            self.at = found.end()
            self.at = _behind(self.text, self.at, self.heredocs)
            self.heredocs = []
            self.end_line()
        elif found := _COMMENT.match(text, at):
            self.comments.append(found.span())
            self.on_line.append(found.span())
            self.at = found.end()
        elif not self.words and text.startswith("((", at):
            self.arithmetic()
        elif found := _REDIRECTION.match(text, at):
            self.redirection(found)
        elif found := _OPERATOR.match(text, at):
            self.operator(found[0])
        else:
            self.take(self.word())

    def end_line(self) -> None:
        first = self.on_line[0][0] if self.on_line else self.at
        code = self.text[self.line : first].strip() != ""
        if self.line < self.at:
            self.lines.append(LogicalLine(self.line, self.at, tuple(self.on_line), code))
        self.line, self.on_line = self.at, []

    def operator(self, sign: str) -> None:
        self.at += len(sign)
        if sign == "(":
            if len(self.words) == 1 and self.text[self.at :].lstrip(" \t").startswith(")"):
                self.at = self.text.index(")", self.at) + 1
                self.words, self.defines = [], True
                return
            if self.words:
                raise NotUnderstoodError("a bracket")
            self.open("(")
        elif sign == ")":
            self.end_command(";")
            if self.stack and self.stack[-1].endswith("("):
                self.close()
            elif not self.stack or not self.stack[-1].endswith("case"):
                raise NotUnderstoodError("a bracket that nothing opens")
        else:
            self.end_command(sign)

    def open(self, what: str) -> None:
        self.stack.append(f"function {what}" if self.defines else what)
        if len(self.stack) > 10 * _DEEPEST:
            raise NotUnderstoodError("too deep")
        self.defines = False

    def close(self) -> None:
        self.stack.pop()
        # What follows, as in `} | tee log` or `) || exit`, is judged by its own operator.
        self.chained = False

    def take(self, word: Word) -> None:
        """Add a word to the command, unless it is a word of the grammar."""
        text = None if word.quoted else word.literal
        if self.words or text is None:
            self.words.append(word)
        elif text in _OPENS:
            self.open("do" if text in ("while", "until", "for", "select") else text)
            if text in ("for", "select"):
                self.loop_header()
            elif text == "case":
                self.case_header()
        elif text in _CLOSES:
            if not self.stack or self.stack[-1].split()[-1] != _CLOSES[text]:
                raise NotUnderstoodError(f"`{text}`")
            self.close()
        elif text == "function":
            self.function_header()
        elif text == "[[":
            self.condition()
        elif text not in _GOES_ON:
            self.words.append(word)

    def loop_header(self) -> None:
        self.blanks()
        if self.text.startswith("((", self.at):
            self.arithmetic()
            return
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise NotUnderstoodError("a loop")
        self.write(name[0], name.start())
        self.at = name.end()
        self.blanks()
        if self.text.startswith("in", self.at):
            self.at += 2
            while (
                not _LINE_END.match(self.text, self.at) and self.text[self.at : self.at + 1] != ";"
            ):
                if not self.blanks():
                    self.word()

    def case_header(self) -> None:
        self.blanks()
        self.word()
        while self.blanks() or (end := _LINE_END.match(self.text, self.at)):
            self.at = end.end() if (end := _LINE_END.match(self.text, self.at)) else self.at
        if not self.text.startswith("in", self.at):
            raise NotUnderstoodError("a case")
        self.at += 2

    def function_header(self) -> None:
        self.blanks()
        self.word()
        self.blanks()
        if found := re.compile(r"\([ \t]*\)").match(self.text, self.at):
            self.at = found.end()
        self.defines = True

    def condition(self) -> None:
        """Skip `[[ … ]]`."""
        while self.at < len(self.text):
            if self.blanks():
                continue
            if self.text[self.at] in "\r\n;&|()<>":
                self.at += 1
            elif self.word().literal == "]]":
                return
        raise NotUnderstoodError("`[[`")

    def arithmetic(self) -> None:
        """Skip `((…))`, which may set what it names."""
        start = self.at
        self.at = _skip(self.text, start)
        self.computed(start)

    def computed(self, start: int) -> None:
        """Note what arithmetic may set: all that it names."""
        for name in _NAME.finditer(self.text, start, self.at):
            self.write(name[0], name.start())

    def blanks(self) -> bool:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def redirection(self, found: re.Match[str]) -> None:
        sign = found[0].lstrip("0123456789")
        self.at = found.end()
        self.blanks()
        if sign in (">&", "<&") and (number := re.compile(r"[0-9]+-?|-").match(self.text, self.at)):
            self.at = number.end()
            return
        start = self.at
        word = self.word()
        if sign in ("<<", "<<-"):
            raw = self.text[start : word.end]
            self.heredocs.append((re.sub(r"[\\'\"]", "", raw), sign == "<<-"))

    def end_command(self, sign: str) -> None:
        scope = self.scope(sign)
        if self.words:
            assigns = 0
            for word in self.words:
                if not _assigned(word):
                    break
                assigns += 1
            command = Command(tuple(self.words), assigns, scope)
            self.commands.append(command)
            self.writes += _writes(command)
            self.words = []
            self.chained = sign in ("&&", "||", "|", "|&")
        elif sign not in (";", "&"):
            self.chained = True

    def scope(self, sign: str) -> Scope:
        if any(each.startswith("function") for each in self.stack):
            return Scope.IN_FUNCTION
        # The other side of a pipe, and what is in the background, runs in a shell of its own.
        apart = not self.in_one_shell or self.chained or sign in ("|", "|&", "&")
        return Scope.MAYBE if self.stack or apart else Scope.ALWAYS

    def write(self, name: str, at: int) -> None:
        """Note that something sets a variable to what is unknown."""
        self.writes.append(Write(name, at, None, False))

    def word(self) -> Word:
        """Read the word that starts here."""
        text, start = self.text, self.at
        parts: list[Part] = []
        quoted = False
        while self.at < len(text):
            at, sign = self.at, text[self.at]
            if found := _PLAIN.match(text, at):
                parts.append(found[0])
                self.at = found.end()
            elif found := re.compile(r"\\(?:\r\n|\n|\r)").match(text, at):
                self.at = found.end()
            elif sign == "\\":
                parts.append(text[at + 1 : at + 2])
                quoted, self.at = True, min(at + 2, len(text))
            elif sign == "'":
                end = _index(text, "'", at + 1)
                parts.append(text[at + 1 : end])
                quoted, self.at = True, end + 1
            elif sign == '"':
                parts += self.double_quoted()
                quoted = True
            elif sign in "$`":
                parts.append(self.expansion(quoted=False))
            elif sign == "(" and at > start and text[at - 1] == "=":
                parts.append(self.array())
            elif sign in "<>" and text.startswith("(", at + 1):
                self.at = _skip(text, at + 1)
                parts.append(None)
            else:
                break
        if self.at == start:
            raise NotUnderstoodError(f"{text[start : start + 1]!r} is no word")
        return Word(start, self.at, tuple(parts), quoted)

    def double_quoted(self) -> Iterator[Part]:
        text = self.text
        self.at += 1
        plain = re.compile(r"(?:[^\"\\$`]|\\.)+", re.DOTALL)
        parts: list[Part] = [""]
        while self.at < len(text) and text[self.at] != '"':
            if found := plain.match(text, self.at):
                parts.append(re.sub(r"\\(?:\r\n|\n)", "", re.sub(r'\\(["$`\\])', r"\1", found[0])))
                self.at = found.end()
            elif text[self.at] in "$`":
                parts.append(self.expansion(quoted=True))
            else:
                raise NotUnderstoodError("a quote")
        if self.at >= len(text):
            raise NotUnderstoodError("a quote without an end")
        self.at += 1
        return iter(parts)

    def expansion(self, *, quoted: bool) -> Part:
        """Read what starts with a `$` or a backquote."""
        text, at = self.text, self.at
        if text[at] == "`":
            self.at = _index(text, "`", at + 1) + 1
            return None if quoted else MANY
        if found := _PARAMETER.match(text, at):
            self.at = found.end()
            name = found[1] or found[2]
            if name:
                return Variable(name, quoted)
            return MANY if found[0] in ("$@", "$*") else None
        following = text[at + 1 : at + 2]
        if following == "'" and not quoted:
            escaped = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(text, at)
            if escaped is None:
                raise NotUnderstoodError("a quote without an end")
            self.at = escaped.end()
            return None
        if following in ("(", "{"):
            self.at = _skip(text, at + 1, quoted=quoted and following == "{")
            inside = text[at : self.at]
            if inside.startswith("$((") and re.search(r"=|\+\+|--", inside):
                self.computed(at)
            if found := re.match(r"\$\{([A-Za-z_]\w*):?=", inside):
                self.write(found[1], at)
            if array := _ARRAY.fullmatch(inside):
                return Array(array[1])
            several = "[@]" in inside or "[*]" in inside or inside[2:3] in ("@", "*")
            return MANY if several or (not quoted and _may_be_gone(inside)) else None
        self.at += 1
        return "$" if following != '"' else None

    def array(self) -> Elements:
        """Read `(…)` behind an assignment."""
        self.at += 1
        words: list[Word] = []
        while self.at < len(self.text):
            if self.blanks():
                continue
            if found := _LINE_END.match(self.text, self.at) or _COMMENT.match(self.text, self.at):
                self.at = found.end()
            elif self.text[self.at] == ")":
                self.at += 1
                return Elements(tuple(words))
            else:
                words.append(self.word())
        raise NotUnderstoodError("an array without an end")


def _may_be_gone(expansion: str) -> bool:
    """Return whether an unquoted `$(…)` or `${…}` is likely to be no word, or several."""
    return ":+" in expansion or "+" in expansion[:3]


def _index(text: str, sign: str, start: int) -> int:
    found = re.compile(
        rf"(?:[^{sign}\\]|\\.)*{sign}" if sign == "`" else rf"[^{sign}]*{sign}", re.DOTALL
    ).match(text, start)
    if found is None:
        raise NotUnderstoodError(f"{sign} without an end")
    return found.end() - 1


def _skip(text: str, at: int, *, quoted: bool = False) -> int:
    """Return the end of what the bracket at ``at`` opens, with quotes and brackets in it.

    Args:
        quoted: whether double quotes are around it.
    """
    inside: list[str] = []
    heredocs: list[tuple[str, bool]] = []
    while at < len(text):
        sign, last = text[at], inside[-1] if inside else ""
        in_code = last == ")"
        if sign == "\\":
            at += 1
        elif sign == "#" and in_code and text[at - 1] in " \t\r\n(":
            end = _LINE_END.search(text, at)
            at = end.start() - 1 if end else len(text)
        elif sign == "'" and last == "}" and (quoted or '"' in inside):
            # Whether it is a quote depends on the operator.
            raise NotUnderstoodError("a quote in an expansion in quotes")
        elif sign == "'" and last != '"':
            at = _index(text, "'", at + 1)
        elif in_code and text.startswith("<<<", at):
            at += 2
        elif in_code and (found := _HEREDOC.match(text, at)):
            heredocs.append((found[3], found[1] == "-"))
            at = found.end() - 1
        elif heredocs and in_code and (found := _LINE_END.match(text, at)):
            at = _behind(text, found.end(), heredocs) - 1
            heredocs = []
        elif sign == last:
            inside.pop()
        elif sign == '"':
            inside.append('"')
        elif sign in _ENDS and (last != '"' or text[at - 1] == "$"):
            inside.append(_ENDS[sign])
        elif sign == "`":
            at = _index(text, "`", at + 1)
        at += 1
        if not inside:
            return at
        if len(inside) > _DEEPEST:
            raise NotUnderstoodError("too deep")
    raise NotUnderstoodError("a bracket without an end")


def _behind(text: str, at: int, heredocs: list[tuple[str, bool]]) -> int:
    """Return the end of the here-documents that start at a line, by their delimiters.

    Args:
        heredocs: each with whether tabs may be in front of the delimiter.
    """
    for delimiter, tabs in heredocs:
        while True:
            if at >= len(text):
                raise NotUnderstoodError("a here-document without an end")
            end = _LINE_END.search(text, at)
            line = text[at : end.start() if end else len(text)]
            at = end.end() if end else len(text)
            if (line.lstrip("\t") if tabs else line) == delimiter:
                break
    return at


def _assigned(word: Word) -> re.Match[str] | None:
    """Return the match of `name=` if a word is an assignment."""
    first = word.parts[0] if word.parts else None
    return _ASSIGNMENT.match(first) if isinstance(first, str) else None


def _value(word: Word, found: re.Match[str]) -> Word | None:
    """Return the word behind `name=`, None if it is no plain assignment."""
    if found[2] or found[0].endswith("+=") or word.is_many:
        return None
    first = word.parts[0]
    assert isinstance(first, str)
    parts = (first[found.end() :], *word.parts[1:])
    # An assignment splits no words.
    whole = tuple(Variable(p.name, True) if isinstance(p, Variable) else p for p in parts)
    return Word(word.start + found.end(), word.end, whole, word.quoted)


def _elements(word: Word, found: re.Match[str]) -> tuple[Word, ...] | None:
    """Return the words of `name=(…)`, None if it is something else."""
    is_whole = found[0] == found[1] + "=" and len(word.parts) == 2
    last = word.parts[-1]
    return last.words if is_whole and isinstance(last, Elements) else None


_SETTERS = frozenset({"export", "declare", "typeset", "readonly", "local"})
_OTHER_SETTERS = frozenset({"read", "readarray", "mapfile", "getopts", "unset", "let", "printf"})


def _writes(command: Command) -> Iterator[Write]:
    always = command.scope is Scope.ALWAYS
    rest = command.words[command.assigns :]
    for word in command.words[: command.assigns]:
        found = _assigned(word)
        assert found is not None
        # In front of a command they are for it alone, and what others see is what it was.
        if not rest:
            value, elements = _value(word, found), _elements(word, found)
            yield Write(found[1], word.start, value, always, elements=elements)
    name = command.name
    flags = [word.literal or "" for word in rest[1:] if not _assigned(word)]
    options = [flag for flag in flags if flag.startswith("-")]
    plain = name != "local" and all(map(_PLAIN_FLAGS.fullmatch, options))
    for word in rest[1:] if name in _SETTERS else ():
        if found := _assigned(word):
            value, elements = _value(word, found), _elements(word, found)
            known = (value, elements) if plain else (None, None)
            exported = name == "export" or "x" in "".join(options)
            yield Write(found[1], word.start, known[0], always, exported, known[1])
    for word in rest[1:] if name in _OTHER_SETTERS else ():
        if found_name := _NAME.match(word.literal or ""):
            yield Write(found_name[0], word.start, None, False)
