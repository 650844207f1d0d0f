"""The options of `check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fsdplint.cache.replay import OFF
from fsdplint.cli.completion import complete_format, complete_selectors
from fsdplint.process.terminal import color_option
from fsdplint.report import REPORTS
from fsdplint.settings.config import SEVERITIES
from fsdplint.settings.rule_selection import OptIn


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `check`, which its help describes."""

    fix: bool
    fix_only: bool
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
    pedantic: bool
    formats: tuple[str, ...]
    output_file: str | None
    statistics: bool
    quiet: bool
    verbose: bool
    fail_on: str | None
    exit_zero: bool
    exit_non_zero_on_fix: bool
    strict: bool
    baseline: str | None
    no_baseline: bool
    exclude: tuple[str, ...]
    extend_exclude: tuple[str, ...]
    force_exclude: bool
    stdin_filename: str | None
    config: str | None
    isolated: bool
    no_cache: bool
    watch: bool
    show_files: bool
    show_settings: bool

    @property
    def changes(self) -> bool:
        """True if files are to be changed, or their changes shown."""
        return self.fixes or self.diff or self.add_ignore is not None

    @property
    def fixes(self) -> bool:
        """True if fixes are to be applied."""
        return self.fix or self.fix_only

    @property
    def selectors(self) -> tuple[list[str], list[str], list[str]]:
        """The words of --select, --ignore and --extend-select."""
        return split(self.select), split(self.ignore), split(self.extend_select)

    @property
    def opt_in(self) -> OptIn:
        """The kinds of rules that --preview and --pedantic turn on."""
        return OptIn(self.preview, self.pedantic)

    def expect_consistent(self, paths: tuple[str, ...]) -> None:
        """Return if the options go together, and with ``paths``.

        Raises:
            click.UsageError: they do not.
        """
        reason = self.add_ignore
        if self.quiet and self.verbose:
            raise click.UsageError("--quiet cannot be combined with --verbose")
        if self.unsafe_fixes and not (self.fixes or self.diff):
            raise click.UsageError("--unsafe-fixes requires --fix or --diff")
        if reason is not None and self.fixes:
            raise click.UsageError("--add-ignore cannot be combined with --fix")
        if reason is not None and not (reason.isprintable() and reason.strip()):
            raise click.UsageError("--add-ignore requires a reason of one line")
        if self.proving and not (self.fixes and paths and Path(paths[0]).is_file()):
            raise click.UsageError("--verify requires --fix, and a script as the first path")
        if self.watch and (self.show_files or self.show_settings):
            raise click.UsageError(
                "--watch cannot be combined with --show-files or --show-settings"
            )
        if self.watch and (self.proving or "-" in paths):
            raise click.UsageError("--watch cannot be combined with --verify or standard input")
        if self.baseline and self.no_baseline:
            raise click.UsageError("--baseline cannot be combined with --no-baseline")


def split(lists: tuple[str, ...]) -> list[str]:
    """Return the words of ``lists``, in each of which commas separate them."""
    return [word.strip() for words in lists for word in words.split(",")]


def _expect_steps(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value:
        from fsdplint.verify.command import length

        length(value)
    return value


def opting_in(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with the options that turn on kinds of rules."""
    for name, help_ in (
        (
            "--pedantic",
            "Include rules of severity note in ALL and in code prefixes: advice, and faults that "
            "rarely do harm.",
        ),
        ("--preview", "Include preview rules in ALL and in code prefixes."),
    ):
        command = click.option(name, is_flag=True, help=help_)(command)
    return command


def _selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with the options that select rules by names, codes and prefixes."""
    for name, help_ in (
        ("--extend-select", "Run these rules in addition to the selected ones."),
        ("--ignore", "Disable these rules."),
        ("--select", "Run only these rules: names, codes, code prefixes such as FSD3, or ALL."),
    ):
        command = click.option(
            name,
            multiple=True,
            metavar="RULE,…",
            help=help_,
            shell_complete=complete_selectors,
        )(command)
    return command


_ALL = (
    click.argument("paths", nargs=-1, type=click.Path()),
    click.option("--fix", is_flag=True, help="Apply safe fixes."),
    click.option(
        "--fix-only",
        is_flag=True,
        help="Apply safe fixes. Do not report the remaining findings, or fail on them.",
    ),
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
    opting_in,
    click.option(
        "--output-format",
        "formats",
        multiple=True,
        metavar="NAME[=FILE]",
        shell_complete=complete_format,
        envvar="FSDPLINT_OUTPUT_FORMAT",
        show_envvar=True,
        help=f"Report format: {', '.join(REPORTS)}. Append =FILE to write the report to a file; "
        "repeat the option for several reports. The default is full.",
    ),
    click.option(
        "-o",
        "--output-file",
        type=click.Path(),
        help="Write the report to this file instead of standard output.",
    ),
    click.option("--statistics", is_flag=True, help="Print the number of findings per rule."),
    click.option("-q", "--quiet", is_flag=True, help="Print only findings and errors; no summary."),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Print the settings file, the rules, and what happened to each file.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(SEVERITIES),
        help="Exit with 1 only if a finding is at least this severe. The default is warning.",
    ),
    click.option("-e", "--exit-zero", is_flag=True, help="Exit with 0 even if there are findings."),
    click.option(
        "--exit-non-zero-on-fix",
        is_flag=True,
        help="Exit with 1 if files were changed, even if no findings are left.",
    ),
    click.option(
        "--strict", is_flag=True, help="Exit with 2 if the analysis of a program stopped early."
    ),
    click.option(
        "--baseline", type=click.Path(), help="Report only findings not in this baseline."
    ),
    click.option("--no-baseline", is_flag=True, help="Ignore the baseline from the settings."),
    click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN,…",
        help="Exclude these files and folders instead of those in the settings.",
    ),
    click.option(
        "--extend-exclude",
        multiple=True,
        metavar="PATTERN,…",
        help="Exclude these files and folders in addition to those in the settings.",
    ),
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
    click.option("-w", "--watch", is_flag=True, help="Check again whenever a file changes."),
    click.option("--show-files", is_flag=True, help="List the files to check, and check none."),
    click.option(
        "--show-settings", is_flag=True, help="Print the settings that apply, and check nothing."
    ),
)


def check_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the paths and the members of `Options`."""
    for option in reversed(_ALL):
        command = option(command)
    return command
