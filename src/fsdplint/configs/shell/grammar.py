"""The grammar of a shell script: commands, and how each of them is reached."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from fsdplint.configs.shell.words import (
    BLANK,
    COMMENT,
    DEEPEST,
    LINE_END,
    NAME,
    Heredocs,
    NotUnderstoodError,
    Reader,
    Word,
    end_of_heredocs,
)
from fsdplint.files.lexing import LogicalLine

_REDIRECTION = re.compile(r"[0-9]*(?:&>>|&>|<<<|<<-?|>>|>\||>&|<&|<>|<(?!\()|>(?!\())")
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()]")
_EMPTY_BRACKETS = re.compile(r"\([ \t]*\)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?\+?=")
_OPENS = frozenset({"if", "while", "until", "for", "select", "case", "{"})
_LOOPS = frozenset({"while", "until", "for", "select"})
_CLOSES = {"fi": "if", "done": "do", "esac": "case", "}": "{"}
_GOES_ON = frozenset({"then", "else", "elif", "do", "!", "time"})


class Scope(Enum):
    """How a command is reached."""

    ALWAYS = auto()
    MAYBE = auto()
    IN_FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words without redirections.

    Attributes:
        assigns: how many of the first words are assignments.
        scope: whether every run of the script that gets to the place runs it, in this shell.
    """

    words: tuple[Word, ...]
    assigns: int
    scope: Scope

    @property
    def start(self) -> int:
        """The start of its first word."""
        return self.words[0].start

    @property
    def end(self) -> int:
        """The end of its last word."""
        return self.words[-1].end

    @property
    def name(self) -> str:
        """The name of the program if it is literal, else ""."""
        rest = self.words[self.assigns :]
        return (rest[0].literal or "") if rest else ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parts of a script.

    Attributes:
        comments: the places of its comments.
        lines: its logical lines.
        touched: variables that something other than an assignment may set, each with its place.
    """

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, int], ...]
    lines: tuple[LogicalLine, ...]
    touched: tuple[tuple[str, int], ...]


def assignment(word: Word) -> re.Match[str] | None:
    """Return the match of `name=` if a word is an assignment."""
    first = word.parts[0] if word.parts else None
    return _ASSIGNMENT.match(first) if isinstance(first, str) else None


@dataclass
class Parser:
    """Reads a script step by step.

    Attributes:
        in_one_shell: whether its commands follow each other.
    """

    reader: Reader
    in_one_shell: bool
    commands: list[Command] = field(default_factory=list)
    comments: list[tuple[int, int]] = field(default_factory=list)
    lines: list[LogicalLine] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    heredocs: Heredocs = field(default_factory=list)
    # The command that is being read.
    words: list[Word] = field(default_factory=list)
    chained: bool = False
    defines: bool = False
    # The logical line that is being read, and the comments on it.
    line: int = 0
    on_line: list[tuple[int, int]] = field(default_factory=list)

    def parse(self) -> Parsed:
        """Read the whole text.

        Raises:
            NotUnderstoodError: it is not a script, or not one that this reader knows.
        """
        reader = self.reader
        if "\0" in reader.text:
            raise NotUnderstoodError("a NUL")
        while reader.at < len(reader.text):
            self._step()
        self._end_command(";")
        if self.stack or self.heredocs:
            raise NotUnderstoodError("the end comes early")
        self._end_line()
        return Parsed(
            tuple(self.commands), tuple(self.comments), tuple(self.lines), tuple(reader.touched)
        )

    def _step(self) -> None:
        reader = self.reader
        if reader.take(BLANK):
            return
        if found := reader.match(LINE_END):
            self._end_command(";")
            reader.at = end_of_heredocs(reader.text, found.end(), self.heredocs)
            self.heredocs = []
            self._end_line()
        elif found := reader.take(COMMENT):
            self.comments.append(found.span())
            self.on_line.append(found.span())
        elif not self.words and reader.text.startswith("((", reader.at):
            reader.arithmetic()
        elif found := reader.take(_REDIRECTION):
            self._redirection(found)
        elif found := reader.take(_OPERATOR):
            self._operator(found[0])
        else:
            self._take(reader.word())

    def _end_line(self) -> None:
        reader = self.reader
        first = self.on_line[0][0] if self.on_line else reader.at
        has_code = reader.text[self.line : first].strip() != ""
        if self.line < reader.at:
            self.lines.append(LogicalLine(self.line, reader.at, tuple(self.on_line), has_code))
        self.line, self.on_line = reader.at, []

    def _operator(self, sign: str) -> None:
        reader = self.reader
        if sign == "(":
            if len(self.words) == 1 and reader.text[reader.at :].lstrip(" \t").startswith(")"):
                reader.at = reader.text.index(")", reader.at) + 1
                self.words, self.defines = [], True
                return
            if self.words:
                raise NotUnderstoodError("a bracket")
            self._open("(")
        elif sign == ")":
            self._end_command(";")
            if self.stack and self.stack[-1].endswith("("):
                self._close()
            elif not self.stack or not self.stack[-1].endswith("case"):
                raise NotUnderstoodError("a bracket that nothing opens")
        else:
            self._end_command(sign)

    def _open(self, what: str) -> None:
        self.stack.append(f"function {what}" if self.defines else what)
        if len(self.stack) > 10 * DEEPEST:
            raise NotUnderstoodError("too deep")
        self.defines = False

    def _close(self) -> None:
        self.stack.pop()
        # What follows, as in `} | tee log` or `) || exit`, is judged by its own operator.
        self.chained = False

    def _take(self, word: Word) -> None:
        """Add a word to the command, unless it is a keyword."""
        text = None if word.quoted else word.literal
        if self.words or text is None:
            self.words.append(word)
        elif text in _OPENS:
            self._open("do" if text in _LOOPS else text)
            if text in ("for", "select"):
                self._loop_header()
            elif text == "case":
                self._case_header()
        elif text in _CLOSES:
            if not self.stack or self.stack[-1].split()[-1] != _CLOSES[text]:
                raise NotUnderstoodError(f"`{text}`")
            self._close()
        elif text == "function":
            self._function_header()
        elif text == "[[":
            self._condition()
        elif text not in _GOES_ON:
            self.words.append(word)

    def _loop_header(self) -> None:
        reader = self.reader
        reader.take(BLANK)
        if reader.text.startswith("((", reader.at):
            reader.arithmetic()
            return
        name = reader.take(NAME)
        if name is None:
            raise NotUnderstoodError("a loop")
        reader.touched.append((name[0], name.start()))
        reader.take(BLANK)
        if not reader.text.startswith("in", reader.at):
            return
        reader.at += 2
        while not reader.match(LINE_END) and reader.text[reader.at : reader.at + 1] != ";":
            if not reader.take(BLANK):
                reader.word()

    def _case_header(self) -> None:
        reader = self.reader
        reader.take(BLANK)
        reader.word()
        while reader.take(BLANK) or reader.take(LINE_END):
            pass
        if not reader.text.startswith("in", reader.at):
            raise NotUnderstoodError("a case")
        reader.at += 2

    def _function_header(self) -> None:
        reader = self.reader
        reader.take(BLANK)
        reader.word()
        reader.take(BLANK)
        reader.take(_EMPTY_BRACKETS)
        self.defines = True

    def _condition(self) -> None:
        """Skip `[[ … ]]`."""
        reader = self.reader
        while reader.at < len(reader.text):
            if reader.take(BLANK):
                continue
            if reader.text[reader.at] in "\r\n;&|()<>":
                reader.at += 1
            elif reader.word().literal == "]]":
                return
        raise NotUnderstoodError("`[[`")

    def _redirection(self, found: re.Match[str]) -> None:
        reader, sign = self.reader, found[0].lstrip("0123456789")
        reader.take(BLANK)
        if sign in (">&", "<&") and reader.take(_DESCRIPTOR):
            return
        start = reader.at
        word = reader.word()
        if sign in ("<<", "<<-"):
            raw = reader.text[start : word.end]
            self.heredocs.append((re.sub(r"[\\'\"]", "", raw), sign == "<<-"))

    def _end_command(self, sign: str) -> None:
        scope = self._scope(sign)
        if self.words:
            others = [index for index, word in enumerate(self.words) if not assignment(word)]
            assigns = others[0] if others else len(self.words)
            self.commands.append(Command(tuple(self.words), assigns, scope))
            self.words = []
            self.chained = sign in ("&&", "||", "|", "|&")
        elif sign not in (";", "&"):
            self.chained = True

    def _scope(self, sign: str) -> Scope:
        if any(each.startswith("function") for each in self.stack):
            return Scope.IN_FUNCTION
        # The other side of a pipe, and what is in the background, runs in a shell of its own.
        apart = not self.in_one_shell or self.chained or sign in ("|", "|&", "&")
        return Scope.MAYBE if self.stack or apart else Scope.ALWAYS
