"""Shell scripts that launch training: each call of torchrun or accelerate as a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from fsdplint.configs.embedded import commands
from fsdplint.configs.readers import Readers
from fsdplint.configs.shell import (
    MANY,
    Command,
    NotUnderstoodError,
    Scope,
    Script,
    Variable,
    Word,
    assignment,
    parse,
)
from fsdplint.finding import Edit, Span
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.launch_options import (
    ACCELERATE,
    MODULES,
    PROGRAMS,
    options,
    plain,
    takes_prefixes,
)

DEVICES = "CUDA_VISIBLE_DEVICES"
PYTHON = "python"
# Programs that run the rest of their command line here, with the environment that they are given.
_TRANSPARENT = frozenset(
    {"command", "env", "exec", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time"}
    | {"timeout", "uv", "poetry", "pdm"}
)
_WRAPPERS = _TRANSPARENT | {"conda", "pipenv", "srun", "sudo", "nsys", "ncu"}
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
_PYTHON_FLAG = re.compile(r"-[uBOs]+")
_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(?:(--[a-z-]+)(?:=|[ \t]+)|(-[A-Za-z])[ \t]*)([^\s#]+)")
_DEVICE_LIST = re.compile(r"\d+(?:,\d+)*")
_GPUS = re.compile(r"gpu(?::[a-z][\w.-]*)?:(\d{1,6})|(?:[a-z][\w.-]*:)?(\d{1,6})", re.IGNORECASE)
_ARGUMENT = re.compile(r"run|exec|\d+[smhd]?")
_NOT_BLANK = re.compile(r"[^\s\\]")
_PRINTERS = frozenset({"echo", "printf"})
_OF_FSDP = re.compile(r"--use_fsdp\b|--fsdp[_-]\w+")
_SHORT = {"-n": "--ntasks", "-N": "--nodes", "-G": "--gpus"}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a launch line.

    Attributes:
        name: however it is spelled, with underscores: `nproc_per_node`.
        start: the place of the option, and of its value.
        value: "" of an option without one, None if it is unknown.
        value_start: the place of the value alone; an empty one if there is none.
    """

    name: str
    start: int
    end: int
    value: str | None
    value_start: int
    value_end: int

    @property
    def number(self) -> int | None:
        """The value as a number, None if it is none or unknown."""
        digits = self.value is not None and re.fullmatch(r"[0-9]{1,6}", self.value)
        return int(self.value or "") if digits else None


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that starts processes.

    Attributes:
        launcher: "torchrun", "launch" or "accelerate"; "python" if there is none.
        start: the place of the launcher in the command.
        wrappers: the words in front of it that run it.
        options: those that the launcher knows, up to the first word that is not understood.
        refused: options that it does not know; what follows one is not read.
        closed: whether `options` are all that it gets.
        script: what it runs, None if that is not known to be one word.
        here: whether nothing but the script's own shell decides where it runs, and with what.
        devices: the literal value of CUDA_VISIBLE_DEVICES, with its place.
    """

    command: Command
    launcher: str
    start: int
    end: int
    wrappers: tuple[Word, ...]
    options: tuple[Option, ...]
    refused: tuple[Option, ...]
    closed: bool
    script: Word | None
    here: bool
    devices: tuple[str, int, int] | None

    def get(self, *names: str) -> Option | None:
        """Return the option that counts, the last of its names."""
        found = [option for option in self.options if option.name in names]
        return found[-1] if found else None

    @property
    def wrapped_by(self) -> str:
        """The program that runs the launcher, "" if none does or that is unknown."""
        return (self.wrappers[0].literal or "") if self.wrappers else ""

    def number(self, name: str, default: int) -> int | None:
        """Return the value of an option as a number, None if it is unknown."""
        option = self.get(name)
        return default if option is None else option.number


@dataclass(frozen=True, slots=True)
class Directive:
    """An `#SBATCH` option, by its long name."""

    name: str
    value: str
    start: int
    end: int
    value_start: int


@dataclass(frozen=True, slots=True)
class LaunchScript:
    """A script with launch lines.

    Attributes:
        plain: in a SLURM script, the calls of Python that no launcher starts.
        releases: what the releases of accelerate that the project admits do with settings.
        readers: what other files of the project say.
        unread: words with options of accelerate for FSDP that no launch line is known to get.
    """

    path: str
    text: str
    script: Script
    launches: tuple[Launch, ...]
    plain: tuple[Launch, ...]
    directives: tuple[Directive, ...]
    releases: tuple[Settings, ...]
    readers: Readers
    unread: tuple[Word, ...] = ()

    def span(self, start: int, end: int) -> Span:
        """Return a place."""
        return Span(self.path, start, end)

    def directive(self, name: str) -> Directive | None:
        """Return the directive that counts: of equal ones the last."""
        return next((each for each in reversed(self.directives) if each.name == name), None)

    @property
    def devices_of_node(self) -> tuple[int, Directive] | None:
        """How many GPUs SLURM gives each node of the job, with the option that says so."""
        given = [each for each in map(self.directive, ("--gres", "--gpus-per-node")) if each]
        found = _GPUS.fullmatch(given[0].value) if len(given) == 1 else None
        if found is None or (given[0].name == "--gres" and not given[0].value.startswith("gpu")):
            return None
        return int(found[1] or found[2]), given[0]

    def removal(self, launch: Launch, option: Option) -> Edit:
        """Return the edit that removes an option, with the blanks in front of it."""
        # The words of an array stand elsewhere, each on a line of its own.
        ends = [word.end for word in launch.command.words if word.end <= option.start]
        in_command = launch.command.start <= option.start
        start = max(ends) if in_command else option.start
        return Edit(self.span(start, option.end), "")

    def shown(self, option: Option | Directive) -> str:
        """Return an option as it is written, on one line."""
        return " ".join(self.text[option.start : option.end].replace("\\\n", " ").split())


def read(
    path: str, text: str, releases: tuple[Settings, ...], readers: Readers
) -> LaunchScript | None:
    """Return the script that a text is, None if it is not understood or launches nothing."""
    try:
        script = shell_of(path, text)
    except NotUnderstoodError:
        return None
    launches = tuple(each for c in script.commands if (each := _launch(script, c)) is not None)
    directives = tuple(_directives(script))
    every = map(partial(_plain, script), script.commands) if directives else ()
    plain_ones = tuple(each for each in every if each is not None)
    unread = tuple(_unread(script, launches))
    if not launches and not plain_ones and not unread:
        return None
    return LaunchScript(
        path, text, script, launches, plain_ones, directives, releases, readers, unread
    )


def shell_of(path: str, text: str) -> Script:
    """Return the commands of a shell script, or those in a file of another tool.

    Raises:
        NotUnderstoodError: they are not understood.
    """
    embedded = commands(path, text)
    return parse(text) if embedded is None else parse(embedded, in_one_shell=False)


def _unread(script: Script, launches: tuple[Launch, ...]) -> Iterator[Word]:
    own = {id(launch.command) for launch in launches}
    starts = [option.start for launch in launches for option in launch.options]
    for command in script.commands:
        for word in () if id(command) in own or command.name in _PRINTERS else command.words:
            text = script.text[word.start : word.end]
            is_read = any(word.start <= start < word.end for start in starts)
            if not is_read and (assignment(word) or "launch" in text) and _OF_FSDP.search(text):
                yield word


def _launch(script: Script, command: Command) -> Launch | None:
    found = _launcher(command)
    if found is None:
        return None
    launcher, first, after = found
    head = command.words[command.assigns : first]
    if not _hands_on(head):
        return None
    reader = _Options(script, command, launcher)
    reader.read(command.words[after:])
    return Launch(
        command,
        launcher,
        command.words[first].start,
        command.words[after - 1].end,
        head,
        tuple(reader.options),
        tuple(reader.refused),
        reader.closed,
        reader.script_word,
        _is_here(head),
        _devices(script, command, head) if _is_here(head) else None,
    )


def _plain(script: Script, command: Command) -> Launch | None:
    """Return the call of Python with a file that a command is, None if it is none."""
    words = command.words
    literals = [word.literal or "" for word in words]
    own = range(command.assigns, len(words))
    first = next((index for index in own if _PYTHON.fullmatch(literals[index])), len(words))
    after = first + 1
    while after < len(words) and _PYTHON_FLAG.fullmatch(literals[after]):
        after += 1
    head = words[command.assigns : first]
    if after >= len(words) or not literals[after].endswith(".py") or _launcher(command):
        return None
    if not _hands_on(head):
        return None
    start, end, here = words[first].start, words[after - 1].end, _is_here(head)
    devices = _devices(script, command, head) if here else None
    return Launch(command, PYTHON, start, end, head, (), (), True, words[after], here, devices)


def _launcher(command: Command) -> tuple[str, int, int] | None:
    """Return the launcher, the index of its first word and the one behind its last."""
    words = command.words
    for index in range(command.assigns, len(words)):
        text, following = _program(words[index]), words[index + 1 : index + 2]
        then = (following[0].literal or "") if following else ""
        if text in PROGRAMS:
            return PROGRAMS[text], index, index + 1
        if then == "launch" and (text == "accelerate" or _names_accelerate(words[index])):
            return ACCELERATE, index, index + 2
        if text == "-m" and then in MODULES:
            first = _interpreter(command, index)
            return None if first is None else (MODULES[then], first, index + 2)
    return None


def _names_accelerate(word: Word) -> bool:
    """Return whether a word is a variable that is named after accelerate."""
    names = [part.name for part in word.parts if isinstance(part, Variable)]
    return word.literal is None and len(names) == 1 and ACCELERATE in names[0].lower()


def _interpreter(command: Command, option: int) -> int | None:
    """Return the index of the interpreter whose ``option`` is `-m`, None if there is none."""
    index = option - 1
    while index > command.assigns and (command.words[index].literal or "").startswith("-"):
        index -= 1
    if index < command.assigns:
        return None
    word = command.words[index]
    is_python = word.literal is None or _PYTHON.fullmatch(word.literal)
    return index if is_python and not word.is_many else None


def _hands_on(head: tuple[Word, ...]) -> bool:
    """Return whether the words in front of a launcher run it, with the words that follow."""
    if head and head[-1].literal == "--":
        return True  # a tool that runs what follows, here or elsewhere
    takes_value = False
    for word in head:
        text = word.literal
        known = text is None or text.startswith("-") or "=" in text or text in _WRAPPERS
        if not known and not takes_value and not _ARGUMENT.fullmatch(text or ""):
            return False
        takes_value = bool(text) and (text or "").startswith("-") and "=" not in (text or "")
    # `tool --launcher torchrun` is about the word.
    return not (
        takes_value
        and (head[-1].literal or "").startswith("--")
        and len(head[-1].literal or "") > 2
    )


def _program(word: Word) -> str:
    """Return the name of the program that a word is, in whatever folder."""
    last = word.parts[-1] if word.parts else None
    if not isinstance(last, str) or (len(word.parts) > 1 and "/" not in last):
        return word.literal or ""
    return last.rpartition("/")[2]


@dataclass
class _Options:
    """Reads options as argparse does, up to what is not understood."""

    script: Script
    command: Command
    launcher: str
    options: list[Option] = field(default_factory=list)
    refused: list[Option] = field(default_factory=list)
    closed: bool = False
    script_word: Word | None = None

    def read(self, words: tuple[Word, ...]) -> None:
        rest = [(word, self.command) for word in reversed(words)]
        while rest:
            word, at = rest.pop()
            if elements := self.script.elements(word, at):
                # What is in an array was expanded where it was set, which nothing decided.
                within = ((each, Command((each,), 0, Scope.ALWAYS)) for each in elements)
                rest += reversed(list(within))
                continue
            text = self.script.text_of(word, at)
            first = word.parts[0] if word.parts else None
            dashed = text if isinstance(text, str) else first if isinstance(first, str) else None
            if dashed is None or not dashed.startswith("-"):
                # A word that is unknown may be an option, or several.
                if isinstance(text, str) or _is_script(word):
                    self.script_word, self.closed = word, True
                return
            if not self.option(word, text if isinstance(text, str) else None, dashed, rest):
                return

    def option(
        self, word: Word, text: str | None, dashed: str, rest: list[tuple[Word, Command]]
    ) -> bool:
        """Read an option and its value; return whether what follows it is understood."""
        written, equals, _ = dashed.partition("=")
        if text is None and not equals:
            return False
        found = self.known(written)
        if found is None:
            if written.startswith("--") or written[1:2].isalpha():
                refused = (plain(written), word.start, word.end, None, word.start, word.end)
                self.refused.append(Option(*refused))
            return False
        if found == "":
            return False
        takes = options(self.launcher)[found]
        if takes and not equals:
            if not rest:
                return False
            value, at = rest.pop()
            got = self.script.text_of(value, at)
            if got is MANY or (isinstance(got, str) and got.startswith("-")):
                return False
            if _NOT_BLANK.search(self.script.text, word.end, value.start) or value.start < word.end:
                return False  # an array has one of them only
            self.add(found, word, got, (value.start, value.end))
            return True
        if equals and not takes:
            return False
        start = word.start + len(written) + 1 if equals else word.end
        value_text = text.partition("=")[2] if text is not None else None
        self.add(found, word, value_text, (start, word.end))
        return True

    def add(self, found: str, word: Word, value: object, place: tuple[int, int]) -> None:
        text = value if isinstance(value, str) else None
        self.options.append(Option(plain(found), word.start, place[1], text, *place))

    def known(self, written: str) -> str | None:
        """Return the option that the parser takes, None if it knows none, "" if that is open."""
        every = options(self.launcher)
        if written in every:
            return written
        if not written.startswith("--"):
            # Short options may stand together, and have their values behind them.
            return "" if written[:2] in every else None
        starts = [each for each in every if each.startswith(written)]
        if not takes_prefixes(self.launcher):
            return None
        # Several spellings of one option are ambiguous for some releases of Python only.
        return starts[0] if len(starts) == 1 else "" if starts else None


def _is_script(word: Word) -> bool:
    """Return whether a word is a path, though a part of it is unknown."""
    last = word.parts[-1] if word.parts else None
    return isinstance(last, str) and last.endswith(".py") and not word.is_many


def _devices(
    script: Script, command: Command, head: tuple[Word, ...]
) -> tuple[str, int, int] | None:
    """Return the devices that the processes of a command see, as far as the script says so."""
    own = [*command.words[: command.assigns], *head]
    given = [word for word in own if _starts(word, f"{DEVICES}=")]
    if given:
        text = script.text_of(given[-1], command)
        value = text.partition("=")[2] if isinstance(text, str) else ""
        place = given[-1].start, given[-1].end
    else:
        found = script.value(DEVICES, command)
        if found is None or found[0].value is None or not found[0].exported:
            return None
        value, place = found[1], (found[0].at, found[0].value.end)
    listed = value.split(",")
    distinct = _DEVICE_LIST.fullmatch(value) and len(set(listed)) == len(listed)
    return (value, *place) if distinct else None


def _is_here(head: tuple[Word, ...]) -> bool:
    """Return whether the programs in front of a launcher leave its environment as it is."""
    wrappers = {word.literal for word in head} & _WRAPPERS
    first = head[0].literal if head else "env"
    return wrappers <= _TRANSPARENT and first in _TRANSPARENT and "--" not in _literals(head)


def _literals(words: tuple[Word, ...]) -> set[str]:
    return {word.literal or "" for word in words}


def _starts(word: Word, text: str) -> bool:
    first = word.parts[0] if word.parts else None
    return isinstance(first, str) and first.startswith(text)


def _directives(script: Script) -> Iterator[Directive]:
    """Yield the `#SBATCH` options; SLURM reads them up to the first command."""
    first = min((command.start for command in script.commands), default=len(script.text))
    for start, end in script.comments:
        found = _DIRECTIVE.match(script.text, start, end)
        at_line_start = start == 0 or script.text[start - 1] in "\r\n"
        if found and start < first and at_line_start:
            name = found[1] or _SHORT.get(found[2], found[2])
            yield Directive(name, found[3], start, found.end(), found.start(3))
