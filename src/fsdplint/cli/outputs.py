"""The reports of `check`: their formats, and where each goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.files.file import absolute
from fsdplint.files.links import DECLINED, leaves
from fsdplint.report import REPORTS
from fsdplint.suggest import suggest

# What can follow another report on one stream: lines for people, and for GitHub among them.
_LINEWISE = ("full", "concise", "github")


class OutputError(ValueError):
    """Outputs that cannot be made; the message is one line."""


@dataclass(frozen=True, slots=True)
class Output:
    """A report in the format ``format_``, to ``file``, or to standard output if that is None."""

    format_: str
    file: str | None = None


def outputs(words: Sequence[str], file: str | None, default: str) -> tuple[Output, ...]:
    """Return the outputs for ``words``, each ``NAME`` or ``NAME=FILE``.

    Args:
        file: where the one that names no file goes.
        default: the format if there are no words.

    Raises:
        OutputError: a word is invalid, or two outputs would go to one place.
    """
    made = [_output(word) for word in words or [default]]
    shown = [output for output in made if output.file is None]
    if file is not None:
        if len(shown) != 1:
            raise OutputError(
                "--output-file takes one report; use --output-format NAME=FILE for each"
            )
        made[made.index(shown[0])] = Output(shown[0].format_, _file(file, "--output-file"))
    elif len(shown) > 1:
        _expect_lines(shown)
    _expect_different(made)
    return tuple(made)


def _output(word: str) -> Output:
    name, equals, file = word.partition("=")
    if name not in REPORTS:
        hint = suggest(name, REPORTS) or f"; the formats are {', '.join(REPORTS)}"
        raise OutputError(f"unknown output format {name!r}{hint}")
    return Output(name, _file(file, word) if equals else None)


def _file(file: str, word: str) -> str:
    if file in ("", "-"):
        raise OutputError(f"{word}: expected a file name, not {file!r}")
    if not Path(file).absolute().parent.is_dir():
        raise OutputError(f"{file}: {os.strerror(errno.ENOENT)}")
    if Path(file).is_dir():
        raise OutputError(f"{file}: {os.strerror(errno.EISDIR)}")
    if leaves(absolute(file)):
        raise OutputError(f"{file}: {DECLINED.format('it')}")
    return file


def expect_apart(made: Sequence[Output], used: Iterable[str]) -> None:
    """Return if no report would replace a file that the run ``used``.

    Raises:
        OutputError: one would.
    """
    written = [each.file for each in made if each.file and Path(each.file).exists()]
    for path in used if written else ():
        for file in written:
            if Path(path).exists() and Path(path).samefile(file):
                raise OutputError(f"{file}: the report would overwrite a file that this run reads")


def _expect_lines(shown: Sequence[Output]) -> None:
    for output in shown:
        if output.format_ not in _LINEWISE:
            name = output.format_
            raise OutputError(
                f"{name} cannot share standard output with another report; use {name}=FILE"
            )


def _expect_different(made: Sequence[Output]) -> None:
    taken: set[str] = set()
    for output in made:
        place = output.format_ if output.file is None else os.path.realpath(output.file)
        if place in taken:
            raise OutputError(f"{output.file or output.format_} is given twice")
        taken.add(place)
