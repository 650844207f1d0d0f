"""The variables of a shell script: what sets each of them, and to what."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fsdplint.configs.shell.grammar import Command, Parsed, Scope, assignment
from fsdplint.configs.shell.words import MANY, NAME, Array, Elements, Many, Part, Variable, Word
from fsdplint.files.lexing import LogicalLine

_SETTERS = frozenset({"export", "declare", "typeset", "readonly", "local"})
_OTHER_SETTERS = frozenset({"read", "readarray", "mapfile", "getopts", "unset", "let", "printf"})
_PLAIN_FLAGS = re.compile(r"-[arx]+")
_RUN_OTHER_CODE = ("eval", "source", ".")
_LONGEST = 10_000
"""Characters of a value; repeated doubling makes more."""


@dataclass(frozen=True, slots=True)
class Write:
    """A place that sets a variable.

    Attributes:
        value: the new value, None if it is unknown.
        certain: whether every run that gets to the place sets it.
        elements: the elements of an array, None if the value is not one or is unknown.
    """

    name: str
    at: int
    value: Word | None
    certain: bool
    exported: bool = False
    elements: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class _History:
    """The writes of one variable in the order of the text, each with its text if known."""

    writes: list[Write] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)

    def last_before(self, at: int) -> int | None:
        """Return the index of the last write before a place, None if there is none."""
        index = bisect_left(self.writes, at, key=lambda write: write.at)
        return index - 1 if index else None


@dataclass(frozen=True)
class Script:
    """A script, with the values of its variables.

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

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that it sets."""
        return tuple(self._variables)

    def text_of(self, word: Word, at: Command) -> str | Many | None:
        """Return the text of a word when ``at`` runs, MANY for several words, None if unknown.

        An unquoted variable counts as one word: `--port $PORT` is written with that in mind.
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
        """Return the last certain write of a variable before ``at`` runs, with its text."""
        found = self.last_write(name, at)
        return None if found is None or found[1] is None else (found[0], found[1])

    def elements(self, word: Word, at: Command) -> tuple[Word, ...] | None:
        """Return the elements of the array that a word expands, None if they are unknown."""
        parts = [part for part in word.parts if part != ""]  # a quote begins with that
        part = parts[0] if len(parts) == 1 else None
        found = self.last_write(part.name, at) if isinstance(part, Array) else None
        return found[0].elements if found else None

    def last_write(self, name: str, at: Command) -> tuple[Write, str | None] | None:
        """Return the last certain write before ``at`` runs, with its text if that is known."""
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

    def _record(self, write: Write) -> None:
        """Append a write, with its text as far as the earlier writes give it."""
        text = None
        if write.value is not None:
            # An assignment expands its value whether or not it is certain to run.
            text = self.text_of(write.value, Command((write.value,), 0, Scope.ALWAYS))
        known = isinstance(text, str) and len(text) < _LONGEST
        history = self._variables.setdefault(write.name, _History())
        history.writes.append(write)
        history.texts.append(str(text) if known else None)


def with_variables(text: str, parsed: Parsed) -> Script:
    """Return the script that was parsed from a text."""
    writes = sorted(_every_write(parsed), key=lambda write: write.at)
    script = Script(
        text,
        parsed.commands,
        parsed.comments,
        parsed.lines,
        {},
        frozenset(write.name for write in writes if not write.certain),
        tuple(c.start for c in parsed.commands if c.name in _RUN_OTHER_CODE),
    )
    for write in writes:
        script._record(write)
    return script


def _every_write(parsed: Parsed) -> Iterator[Write]:
    for command in parsed.commands:
        yield from _writes(command)
    for name, at in parsed.touched:
        yield Write(name, at, None, False)


def _writes(command: Command) -> Iterator[Write]:
    always = command.scope is Scope.ALWAYS
    rest = command.words[command.assigns :]
    if not rest:
        # In front of a command, assignments hold for that command alone.
        yield from _assigned(command.words, certain=always)
    name = command.name
    flags = [word.literal or "" for word in rest[1:] if not assignment(word)]
    options = [flag for flag in flags if flag.startswith("-")]
    if name in _SETTERS:
        known = name != "local" and all(map(_PLAIN_FLAGS.fullmatch, options))
        exported = name == "export" or "x" in "".join(options)
        yield from _assigned(rest[1:], certain=always, known=known, exported=exported)
    for word in rest[1:] if name in _OTHER_SETTERS else ():
        if found := NAME.match(word.literal or ""):
            yield Write(found[0], word.start, None, False)


def _assigned(
    words: Iterable[Word], *, certain: bool, known: bool = True, exported: bool = False
) -> Iterator[Write]:
    for word in words:
        if found := assignment(word):
            value = _value(word, found) if known else None
            elements = _elements(word, found) if known else None
            yield Write(found[1], word.start, value, certain, exported, elements)


def _value(word: Word, found: re.Match[str]) -> Word | None:
    """Return the word after `name=`, None if it is not a plain assignment."""
    if found[2] or found[0].endswith("+=") or word.is_many:
        return None
    first = word.parts[0]
    assert isinstance(first, str)
    parts = (first[found.end() :], *word.parts[1:])
    # An assignment splits no words.
    whole = tuple(Variable(p.name, True) if isinstance(p, Variable) else p for p in parts)
    return Word(word.start + found.end(), word.end, whole, word.quoted)


def _elements(word: Word, found: re.Match[str]) -> tuple[Word, ...] | None:
    """Return the words of `name=(…)`, None if it is anything else."""
    is_whole = found[0] == found[1] + "=" and len(word.parts) == 2
    last = word.parts[-1]
    return last.words if is_whole and isinstance(last, Elements) else None


def _is_one_word(text: str) -> bool:
    return text != "" and not re.search(r"[\s*?\[]", text)
