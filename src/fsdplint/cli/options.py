"""The options of `check` as the command line gives them, and the outputs that they ask for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fsdplint.cache.replay import OFF
from fsdplint.files.file import absolute
from fsdplint.files.links import DECLINED, leaves
from fsdplint.report import REPORTS
from fsdplint.suggest import suggest


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `check`; its help says what each is for."""

    fix: bool
    unsafe_fixes: bool
    diff: bool
    add_ignore: str | None
    proving: bool
    nproc: int
    verify_args: str
    steps: str
    timeout: float
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    extend_select: tuple[str, ...]
    preview: bool
    formats: tuple[str, ...]
    output_file: str | None
    statistics: bool
    exit_zero: bool
    strict: bool
    baseline: str | None
    no_baseline: bool
    force_exclude: bool
    stdin_filename: str | None
    config: str | None
    isolated: bool
    no_cache: bool

    @property
    def changes(self) -> bool:
        """Whether files are to be changed, or shown as they would be."""
        return self.fix or self.diff or self.add_ignore is not None

    @property
    def selectors(self) -> tuple[list[str], list[str], list[str]]:
        """The words of --select, --ignore and --extend-select."""
        return _split(self.select), _split(self.ignore), _split(self.extend_select)

    def expect_consistent(self, paths: tuple[str, ...]) -> None:
        """Return if the options go together, and with ``paths``.

        Raises:
            click.UsageError: they do not.
        """
        reason = self.add_ignore
        if self.unsafe_fixes and not (self.fix or self.diff):
            raise click.UsageError("--unsafe-fixes needs --fix or --diff")
        if reason is not None and (self.fix or not reason.isprintable() or not reason.strip()):
            raise click.UsageError("--add-ignore needs a reason on one line, and excludes --fix")
        if self.proving and not (self.fix and paths and Path(paths[0]).is_file()):
            raise click.UsageError("--verify needs --fix and a script as the first path")
        if self.baseline and self.no_baseline:
            raise click.UsageError("--baseline and --no-baseline exclude each other")


def _split(selectors: tuple[str, ...]) -> list[str]:
    return [word.strip() for selector in selectors for word in selector.split(",")]


def _expect_steps(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value:
        from fsdplint.verify.command import length

        length(value)
    return value


def _selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with the options that select rules by names, codes and prefixes."""
    for name, help_ in (
        ("--extend-select", "Run these too."),
        ("--ignore", "Do not run these."),
        ("--select", "Run these rules only: names, codes, prefixes such as FSD3, or ALL."),
    ):
        command = click.option(name, multiple=True, metavar="RULE,…", help=help_)(command)
    return command


_ALL = (
    click.argument("paths", nargs=-1, type=click.Path()),
    click.option("--fix", is_flag=True, help="Write the fixes that are certain to be safe."),
    click.option(
        "--unsafe-fixes", is_flag=True, help="With --fix or --diff: include unsafe fixes."
    ),
    click.option("--diff", is_flag=True, help="Show what --fix would change, and write nothing."),
    click.option(
        "--add-ignore",
        metavar="REASON",
        help="Write a comment with this reason behind each statement that has findings.",
    ),
    click.option(
        "--verify",
        "proving",
        is_flag=True,
        help="With --fix: run the script that is the first path, unfixed and fixed, on several "
        "ranks, and write fixes only if every clause that they are about goes from violated to "
        "confirmed and no clause is violated. Executes it.",
    ),
    click.option("--nproc", type=click.IntRange(1), default=2, help="Ranks of --verify. [2]"),
    click.option(
        "--verify-args", default="", metavar="ARGS", help="The script's own, as one string."
    ),
    click.option(
        "--steps",
        default="",
        callback=_expect_steps,
        metavar="N|all",
        help="Optimizer steps of --verify. [as many as the fixed clauses need]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=300.0,
        metavar="SECONDS",
        help="For each run of --verify. [300]",
    ),
    _selection,
    click.option("--preview", is_flag=True, help="Let ALL and prefixes mean preview rules too."),
    click.option(
        "--output-format",
        "formats",
        multiple=True,
        metavar="NAME[=FILE]",
        help=f"{', '.join(REPORTS)}; with the file to write, or to be printed. Can be repeated.",
    ),
    click.option("--output-file", type=click.Path(), help="Write the report to this file."),
    click.option("--statistics", is_flag=True, help="Count findings by rule."),
    click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings."),
    click.option(
        "--strict", is_flag=True, help="Exit with 2 if the analysis of a program stopped early."
    ),
    click.option("--baseline", type=click.Path(), help="Report only what is not in this baseline."),
    click.option(
        "--no-baseline", is_flag=True, help="Report what is in the settings' baseline too."
    ),
    click.option("--force-exclude", is_flag=True, help="Leave out excluded paths, though given."),
    click.option("--stdin-filename", type=click.Path(), help="What standard input is called."),
    click.option(
        "--config",
        type=click.Path(),
        help="Use this settings file instead of the nearest one in the repository.",
    ),
    click.option("--isolated", is_flag=True, help="Use no settings file."),
    click.option(OFF, is_flag=True, help="Check though the last run may have ended the same."),
)


def check_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the paths and the members of `Options`."""
    for option in reversed(_ALL):
        command = option(command)
    return command


# What can follow another report on one stream: lines for people, and for GitHub among them.
_LINEWISE = ("full", "concise", "github")


class OutputError(ValueError):
    """Outputs that cannot be made; the message is one line."""


@dataclass(frozen=True, slots=True)
class Output:
    """A report in the format called ``format_``, to ``file`` or, without one, a stream."""

    format_: str
    file: str | None = None


def outputs(words: Sequence[str], file: str | None, default: str) -> tuple[Output, ...]:
    """Return the outputs for ``words``, each ``NAME`` or ``NAME=FILE``.

    Args:
        file: where the one that names no file goes.
        default: the format if there are no words.

    Raises:
        OutputError: a word is not understood, or two outputs would go to one place.
    """
    made = [_output(word) for word in words or [default]]
    shown = [output for output in made if output.file is None]
    if file is not None:
        if len(shown) != 1:
            raise OutputError("--output-file is for one format; --output-format NAME=FILE for each")
        made[made.index(shown[0])] = Output(shown[0].format_, _file(file, "--output-file"))
    elif len(shown) > 1:
        _expect_lines(shown)
    _expect_different(made)
    return tuple(made)


def _output(word: str) -> Output:
    name, equals, file = word.partition("=")
    if name not in REPORTS:
        hint = suggest(name, REPORTS) or f"; there are {', '.join(REPORTS)}"
        raise OutputError(f"unknown output format {name!r}{hint}")
    return Output(name, _file(file, word) if equals else None)


def _file(file: str, word: str) -> str:
    if file in ("", "-"):
        raise OutputError(f"{word}: expected the name of a file, not {file!r}")
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
                raise OutputError(f"{file}: is read in this run, and the report would replace it")


def _expect_lines(shown: Sequence[Output]) -> None:
    for output in shown:
        if output.format_ not in _LINEWISE:
            name = output.format_
            raise OutputError(f"{name} cannot share standard output; write {name}=FILE")


def _expect_different(made: Sequence[Output]) -> None:
    taken: set[str] = set()
    for output in made:
        place = output.format_ if output.file is None else os.path.realpath(output.file)
        if place in taken:
            raise OutputError(f"{output.file or output.format_} is given twice")
        taken.add(place)
