"""Commands that train with verl: Hydra's overrides on them, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from fsdplint.configs.launch_lines import shell_of
from fsdplint.configs.shell import Command, NotUnderstoodError, Scope, Script, Word
from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import project_root
from fsdplint.files.file import regular
from fsdplint.finding import Edit, Span
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.verl_settings import (
    ACTOR,
    COPIES,
    DECIDED_IN,
    ENGINE,
    GROUP,
    MAIN,
    PARTS,
    REF,
    SECTIONS,
    STRATEGIES,
    STRATEGY,
    VERSION_FILE,
    decides,
    has_one_engine,
    judges,
    of_copy,
)

PACKAGE = "verl."
PREFIX = "actor_rollout_ref."
_OVERRIDE = re.compile(r"(\+{0,2})([A-Za-z_]\w*(?:\.\w+)*)=")
_FILE = re.compile(r"(?:.*/)?" + re.escape(MAIN.replace(".", "/")) + r"\.py")
_FROM_USER = re.compile(r"\"?\$(?:[@*]|\{[@*]\})\"?")
_MOST = 1_000_000
_PARTS = frozenset((*PARTS.values(), *chain(*SECTIONS.values())))


@dataclass(frozen=True, slots=True)
class Override:
    """`key=value` on a command.

    Attributes:
        sign: "+" if it adds a setting, "++" if it adds or changes one, else "".
        value: None if it is unknown.
        start: the place of the word, and that of the key in it.
        is_apart: whether it stands in an array that the command names.
    """

    sign: str
    name: str
    value: str | None
    start: int
    end: int
    key_start: int
    is_apart: bool

    @property
    def word(self) -> str:
        """The value in lower case, "" if it is unknown."""
        return (self.value or "").lower()


@dataclass(frozen=True, slots=True)
class VerlLine:
    """A command that trains with verl.

    Attributes:
        program: the module that is run, "" if it is none of verl's.
        last: the override of each setting that counts.
        is_whole: whether there is nothing else, as another configuration, but for the arguments
            of the script.
    """

    command: Command
    program: str
    overrides: tuple[Override, ...]
    last: Mapping[str, Override]
    is_whole: bool

    def get(self, name: str) -> Override | None:
        """Return the override of a setting that counts, which is the last."""
        return self.last.get(name)

    def is_known(self, releases: tuple[Settings, ...]) -> bool:
        """Return whether it is known what the program does with its settings in all releases."""
        engine = self.get(ENGINE)
        other = engine is not None and not all(map(has_one_engine, releases))
        return not other and judges(self.program, releases)

    def strategy(self, model: str, releases: tuple[Settings, ...]) -> str | None:
        """Return the strategy that shards a model, None if it is unknown or not of FSDP."""
        name = f"{PARTS[model]}.{STRATEGY}"
        found = self.get(name)
        if found is None:
            if model == REF:
                return self.strategy(ACTOR, releases)
            return next(iter(STRATEGIES)) if self.is_whole else None
        if model == REF and not all(decides(release, name) for release in releases):
            # Some release asks the actor's.
            return found.value if found.value == self.strategy(ACTOR, releases) else None
        return found.value if found.value in STRATEGIES else None


@dataclass(frozen=True, slots=True)
class Stray:
    """An override that a shell runs as a program, since the command before it has ended.

    Attributes:
        before: the command before it.
        others: how many overrides follow it in the same command.
    """

    override: Override
    before: Command
    others: int


@dataclass(frozen=True, slots=True)
class VerlScript:
    """A script with commands that train with verl.

    Attributes:
        strays: overrides that are not on a command.
        releases: what the releases of verl that the project admits do with settings.
        has_copy: whether the project has verl's code, which may be changed.
    """

    path: str
    text: str
    lines: tuple[VerlLine, ...]
    strays: tuple[Stray, ...]
    releases: tuple[Settings, ...]
    has_copy: bool

    @property
    def verl(self) -> str:
        """The releases that are looked at, as users name them."""
        return shown(self.releases)

    def span(self, override: Override) -> Span:
        """Return the place of an override."""
        return Span(self.path, override.start, override.end)

    def written(self, override: Override) -> str:
        """Return an override as it is written, without quotes."""
        return " ".join(self.text[override.start : override.end].strip("'\"").split())

    def removal(self, line: VerlLine, override: Override) -> Edit:
        """Return the edit that removes an override, with the blanks in front of it."""
        start = max(word.end for word in line.command.words if word.end <= override.start)
        return Edit(Span(self.path, start, override.end), "")

    def renaming(self, override: Override, name: str) -> Edit:
        """Return the edit that gives an override another key, without a sign."""
        end = override.key_start + len(override.sign) + len(override.name)
        return Edit(Span(self.path, override.key_start, end), name)


def shown(releases: tuple[Settings, ...]) -> str:
    """Return releases as users name them."""
    first, last = (".".join(map(str, releases[i].release)) for i in (0, -1))
    return f"verl {last}" if first == last else f"verl {first} to {last}"


def read(path: str, text: str, releases: tuple[Settings, ...]) -> VerlScript | None:
    """Return the script that a text is, None if it is not understood or trains nothing.

    Args:
        releases: those that the project's requirements admit.
    """
    try:
        script = shell_of(path, text)
    except NotUnderstoodError:
        return None
    copied = _of_copy(Path(path))
    admitted = releases if copied is None else copied
    lines = tuple(each for command in script.commands if (each := _line(script, command)))
    if not lines:
        return None
    strays = tuple(_strays(script, {id(line.command) for line in lines}))
    return VerlScript(path, text, lines, strays, admitted, copied is not None)


def _strays(script: Script, trains: set[int]) -> Iterator[Stray]:
    """Yield the overrides that are run behind a command that trains.

    Args:
        trains: the identities of such commands.
    """
    behind = False
    for before, command in pairwise(script.commands):
        behind = behind or id(before) in trains
        first = None if command.assigns else _override(script, command.words[0], command, False)
        behind = behind and first is not None
        if behind and first is not None:
            yield Stray(first, before, len(command.words) - 1)


def _of_copy(path: Path) -> tuple[Settings, ...] | None:
    """Return the releases that a copy of verl in the project is between, None if it has none."""
    root = project_root(path)
    for folder in path.parents:
        for place in (folder, folder / "verl"):
            if any(disk.exists(place / file) for file in COPIES):
                return of_copy(_text(place / VERSION_FILE), _text(place / DECIDED_IN))
        if folder == root:
            break
    return None


def _text(file: Path) -> str:
    try:
        return regular(file, _MOST).decode("utf-8", "replace")
    except (OSError, SourceError):
        return ""


def _line(script: Script, command: Command) -> VerlLine | None:
    program = _program(command)
    if program is None:
        return None
    module, index = program
    words = list(_words(script, command, index))
    overrides = tuple(each for word in words if (each := _override(script, *word)))
    if not overrides or not (module or any(each.name.startswith(PREFIX) for each in overrides)):
        return None
    whole = len(overrides) == len(words) - sum(_is_from_user(script, word) for word, *_ in words)
    last = {each.name: each for each in overrides}
    # Whole parts may be replaced.
    other = GROUP in last or any("." not in name or name in _PARTS for name in last)
    return VerlLine(command, module, overrides, last, whole and not other)


def _program(command: Command) -> tuple[str, int] | None:
    """Return the module of verl that is run, "" if it is another, and the index behind it."""
    words = command.words
    for index in range(command.assigns, len(words)):
        text = words[index].literal or ""
        if text == "-m" and index + 1 < len(words):
            module = words[index + 1].literal or ""
            return (module if module.startswith(PACKAGE) else ""), index + 2
        if text.endswith(".py"):
            return (MAIN if _FILE.fullmatch(text) else ""), index + 1
    return None


def _words(script: Script, command: Command, index: int) -> Iterator[tuple[Word, Command, bool]]:
    """Yield the words of a command from an index on, those of arrays that it names too."""
    for word in command.words[index:]:
        elements = script.elements(word, command)
        if elements is None:
            yield word, command, False
        else:
            # What is in an array was expanded where it was set.
            yield from ((each, Command((each,), 0, Scope.ALWAYS), True) for each in elements)


def _override(script: Script, word: Word, at: Command, is_apart: bool) -> Override | None:
    text = script.text_of(word, at)
    known = isinstance(text, str)
    first = text if isinstance(text, str) else _beginning(word)
    found = _OVERRIDE.match(first)
    if found is None:
        return None
    key_start = script.text.find(found[0], word.start, word.end)
    value = str(text)[found.end() :].strip("'\"") if known else None
    if key_start < 0:
        return None
    return Override(found[1], found[2], value, word.start, word.end, key_start, is_apart)


def _beginning(word: Word) -> str:
    """Return the literal text that a word begins with."""
    texts: list[str] = []
    for part in word.parts:
        if not isinstance(part, str):
            break
        texts.append(part)
    return "".join(texts)


def _is_from_user(script: Script, word: Word) -> bool:
    return _FROM_USER.fullmatch(script.text, word.start, word.end) is not None
