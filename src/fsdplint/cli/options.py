"""The options of `check`, and the outputs that they select."""

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
from fsdplint.process.terminal import color_option
from fsdplint.report import REPORTS
from fsdplint.suggest import suggest


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `check`, which its help describes."""

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
        """True if files are to be changed, or their changes shown."""
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
            raise click.UsageError("--unsafe-fixes requires --fix or --diff")
        if reason is not None and self.fix:
            raise click.UsageError("--add-ignore cannot be combined with --fix")
        if reason is not None and not (reason.isprintable() and reason.strip()):
            raise click.UsageError("--add-ignore requires a reason of one line")
        if self.proving and not (self.fix and paths and Path(paths[0]).is_file()):
            raise click.UsageError("--verify requires --fix, and a script as the first path")
        if self.baseline and self.no_baseline:
            raise click.UsageError("--baseline cannot be combined with --no-baseline")


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
        ("--extend-select", "Run these rules in addition to the selected ones."),
        ("--ignore", "Disable these rules."),
        ("--select", "Run only these rules: names, codes, code prefixes such as FSD3, or ALL."),
    ):
        command = click.option(name, multiple=True, metavar="RULE,…", help=help_)(command)
    return command


_ALL = (
    click.argument("paths", nargs=-1, type=click.Path()),
    click.option("--fix", is_flag=True, help="Apply safe fixes."),
    click.option(
        "--unsafe-fixes", is_flag=True, help="Include unsafe fixes (with --fix or --diff)."
    ),
    click.option(
        "--diff", is_flag=True, help="Show the changes of --fix as a diff without writing files."
    ),
    click.option(
        "--add-ignore",
        metavar="REASON",
        help="Suppress all current findings with a comment that gives this reason.",
    ),
    click.option(
        "--verify",
        "proving",
        is_flag=True,
        help="With --fix: run the first path as a script on several ranks, without and with the "
        "fixes. Write them only if every clause they target changes from violated to confirmed "
        "and no clause is violated. Executes your code.",
    ),
    click.option(
        "--nproc",
        type=click.IntRange(1),
        default=2,
        show_default=True,
        metavar="N",
        help="Number of ranks for --verify.",
    ),
    click.option(
        "--verify-args",
        default="",
        metavar="ARGS",
        help="Arguments for the script that --verify runs, as one string.",
    ),
    click.option(
        "--steps",
        default="",
        callback=_expect_steps,
        metavar="N|all",
        help="Number of optimizer steps for --verify, or all to run the script to its end. The "
        "default is as many as the fixed clauses need.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=300,
        show_default=True,
        metavar="SECONDS",
        help="Time limit for each run of --verify.",
    ),
    _selection,
    click.option(
        "--preview", is_flag=True, help="Include preview rules in ALL and in code prefixes."
    ),
    click.option(
        "--output-format",
        "formats",
        multiple=True,
        metavar="NAME[=FILE]",
        envvar="FSDPLINT_OUTPUT_FORMAT",
        show_envvar=True,
        help=f"Report format: {', '.join(REPORTS)}. Append =FILE to write the report to a file; "
        "repeat the option for several reports. The default is full.",
    ),
    click.option(
        "--output-file",
        type=click.Path(),
        help="Write the report to this file instead of standard output.",
    ),
    click.option("--statistics", is_flag=True, help="Print the number of findings per rule."),
    click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings."),
    click.option(
        "--strict", is_flag=True, help="Exit with 2 if the analysis of a program stopped early."
    ),
    click.option(
        "--baseline", type=click.Path(), help="Report only findings not in this baseline."
    ),
    click.option("--no-baseline", is_flag=True, help="Ignore the baseline from the settings."),
    click.option(
        "--force-exclude",
        is_flag=True,
        help="Apply exclusions to paths given on the command line, too.",
    ),
    click.option(
        "--stdin-filename",
        type=click.Path(),
        help="File name to report for code read from standard input.",
    ),
    click.option(
        "--config",
        type=click.Path(),
        help="Use this settings file instead of the nearest pyproject.toml or fsdplint.toml.",
    ),
    click.option("--isolated", is_flag=True, help="Ignore all settings files."),
    click.option(OFF, is_flag=True, help="Disable the cache."),
    color_option,
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
