"""The command line: its commands, their errors, and the exit code.

Only this package, `verify` and the start print.
"""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from fsdplint import __version__
from fsdplint.cache.recording import recording
from fsdplint.cli import CLEAN, FAILED, INTERRUPTED
from fsdplint.files.discover import SUFFIXES, is_config
from fsdplint.process.streams import tolerate_any_text
from fsdplint.process.terminal import color_option, printable
from fsdplint.suggest import suggest

_LONGEST = 2_000  # characters of an error's line, which may quote a setting
# The module that each command, which has its name there, is imported from when it is given.
_COMMANDS: Mapping[str, str] = {
    "baseline": "fsdplint.cli.baseline",
    "check": "fsdplint.cli.check",
    "clean": "fsdplint.cli.clean",
    "explain": "fsdplint.cli.explain",
    "inspect": "fsdplint.cli.inspect",
    "mcp": "fsdplint.mcp.command",
    "migrate": "fsdplint.cli.migrate",
    "new": "fsdplint.cli.new",
    "rules": "fsdplint.cli.explain",
    "server": "fsdplint.server.command",
    "verify": "fsdplint.verify.command",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and end the process with its exit code."""
    # Most of what a run makes lives to its end: looking for garbage less often saves 3 to 9 %, and
    # not looking for it once more when the process ends as much.
    gc.set_threshold(50_000, 100, 100)
    atexit.register(gc.freeze)
    tolerate_any_text()
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    try:
        with recording(arguments) as run:
            code = cli.main(arguments, prog_name="fsdplint", standalone_mode=False, obj=run)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, report it in one line
        return failed(error)
    return code if isinstance(code, int) else CLEAN


def failed(error: BaseException) -> int:
    """Print ``error`` in one line and return the exit code that it ends the process with."""
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    line = explained(error)
    with suppress(OSError):  # to where that is said, nothing can be printed
        click.echo(f"fsdplint: {line}", err=True)
    return FAILED


def explained(error: BaseException) -> str:
    """Return one printable line on what went wrong.

    Raises:
        BaseException: ``error`` itself, if nobody expected it and FSDPLINT_DEBUG is set.
    """
    message = _message(error)
    line = printable(" ".join(message[:_LONGEST].split()))
    return f"{line}{'…' if len(message) > _LONGEST else ''}"


def _message(error: BaseException) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    from fsdplint.cli.outputs import OutputError
    from fsdplint.files.decoding import SourceError
    from fsdplint.settings.config import ConfigError
    from fsdplint.settings.rule_selection import UnknownRuleError
    from fsdplint.suppression.baseline import BaselineError

    if isinstance(error, SourceError):
        return f"{error.path.removeprefix(f'{Path.cwd().as_posix()}/')}: {error.reason}"
    if isinstance(error, (BaselineError, ConfigError, OutputError, UnknownRuleError)):
        return str(error)
    if os.environ.get("FSDPLINT_DEBUG"):
        raise error
    return _refused(error) if isinstance(error, OSError) else _internal(error)


def _refused(error: OSError) -> str:
    """Return what the system refused, e.g. to print to a full disk."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _internal(error: BaseException) -> str:
    what = f"{type(error).__name__}: {error}"
    return f"internal error, please report it: {what} (FSDPLINT_DEBUG=1 prints the traceback)"


class _Commands(click.Group):
    """Commands that are imported when they are given, or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that ``args`` give, or suggest the one that is meant.

        Raises:
            click.UsageError: there is no such command.
        """
        name = args[0]
        if name not in _COMMANDS and not ctx.resilient_parsing:
            meant = f"; did you mean {_check_of(args)}?" if _is_path(name) else ""
            hint = meant or suggest(name, _COMMANDS) or f"; the commands are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"no such command {name!r}{hint}")
        return super().resolve_command(ctx, args)


def _is_path(word: str) -> bool:
    return word == "-" or word.endswith(SUFFIXES) or is_config(word) or os.path.lexists(word)


def _check_of(words: Sequence[str]) -> str:
    """Return the check of ``words`` as a command in double quotes."""
    return f'"{shlex.join(["fsdplint", "check", *words])}"'


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@color_option
@click.version_option(__version__, "-V", "--version", message="fsdplint %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find, explain, and fix mistakes in PyTorch FSDP training code.

    Exit codes: 0 if there are no findings, 1 if there are, 2 on an error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
