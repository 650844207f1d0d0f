"""Variables of the environment that a script sets for a launch line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.shell import Command, Word

# Programs that start no training and read no settings of it.
_HARMLESS = frozenset(
    {"[", ".", "awk", "cat", "cd", "conda", "cp", "cut", "date", "declare", "du", "echo", "env"}
    | {
        "exit",
        "export",
        "false",
        "find",
        "grep",
        "head",
        "hostname",
        "kill",
        "local",
        "ls",
        "mkdir",
    }
    | {"module", "mv", "nvidia-smi", "pip", "printf", "pwd", "read", "return", "rm", "scontrol"}
    | {"sed", "set", "shift", "shopt", "sleep", "sort", "source", "tail", "tee", "test", "touch"}
    | {"tr", "trap", "true", "typeset", "ulimit", "umask", "unset", "wait", "wc", "which"}
)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A variable that a launch line gets.

    Attributes:
        value: None if it is unknown.
        start: the place of `name=value`.
        value_start: the place of the value.
        exported: whether commands that follow get it as well.
    """

    name: str
    value: str | None
    start: int
    end: int
    value_start: int
    exported: bool


def variables(script: LaunchScript, launch: Launch, prefix: str) -> dict[str, Assigned]:
    """Return the variables with names that begin with ``prefix``, by name."""
    shell, command = script.script, launch.command
    found: dict[str, Assigned] = {}
    for name in shell.names:
        last = shell.last_write(name, command) if name.startswith(prefix) else None
        if last is None or not last[0].exported or last[0].value is None:
            continue
        write, text = last
        value = write.value
        assert value is not None
        found[name] = Assigned(name, text, write.at, value.end, value.start, True)
    for word in (*command.words[: command.assigns], *launch.wrappers):
        if own := _inline(script, word, command, prefix):
            found[own.name] = own
    return found


def _inline(script: LaunchScript, word: Word, command: Command, prefix: str) -> Assigned | None:
    first = word.parts[0] if word.parts else None
    if not isinstance(first, str) or not first.startswith(prefix) or "=" not in first:
        return None
    name = first.partition("=")[0]
    text = script.script.text_of(word, command)
    value = text.partition("=")[2] if isinstance(text, str) else None
    start = word.start + len(name) + 1
    return Assigned(name, value, word.start, word.end, start, False)


def launches_with(script: LaunchScript, variable: Assigned) -> tuple[Launch, ...] | None:
    """Return the launches that get an exported variable, None if other programs may read it."""
    later = [c for c in script.script.commands if c.start > variable.start]
    own = {id(launch.command): launch for launch in script.launches}
    if any(id(c) not in own and not _is_harmless(c) for c in later):
        return None
    return tuple(own[id(c)] for c in later if id(c) in own)


def _is_harmless(command: Command) -> bool:
    return command.name in _HARMLESS or len(command.words) == command.assigns


def ignored_by_all(
    script: LaunchScript, found: Iterator[tuple[Launch, Assigned]]
) -> Iterator[tuple[Launch, Assigned]]:
    """Yield each variable that has no effect on any launch that gets it, once.

    Args:
        found: the variables that have no effect on a launch.
    """
    by_place: dict[int, list[tuple[Launch, Assigned]]] = {}
    for launch, variable in found:
        by_place.setdefault(variable.start, []).append((launch, variable))
    for every in by_place.values():
        launch, variable = every[0]
        reached = launches_with(script, variable) if variable.exported else (launch,)
        if reached is not None and len(reached) == len(every):
            yield launch, variable


def is_used(script: LaunchScript, name: str) -> bool:
    """Return whether the script itself may read a variable."""
    return (
        re.search(rf"\$\{{?{name}\b|[\"']{name}[\"']|printenv +{name}\b", script.text) is not None
    )
