"""The command line: its commands, their errors, and the exit code.

Only this package, `verify` and the start print.
"""

from __future__ import annotations

import atexit
import gc
import os
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
from fsdplint.process.streams import tolerate_any_text
from fsdplint.process.terminal import printable

_LONGEST = 2_000  # characters of an error's line, which may quote a setting
# The module that each command, which has its name there, is imported from when it is given.
_COMMANDS: Mapping[str, str] = {
    "baseline": "fsdplint.cli.baseline",
    "check": "fsdplint.cli.check",
    "clean": "fsdplint.cli.clean",
    "explain": "fsdplint.cli.explain",
    "inspect": "fsdplint.cli.inspect",
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
    if isinstance(error, click.ClickException):
        return _fail(error.format_message())
    from fsdplint.cli.options import OutputError
    from fsdplint.files.decoding import SourceError
    from fsdplint.settings.config import ConfigError
    from fsdplint.settings.rule_selection import UnknownRuleError
    from fsdplint.suppression.baseline import BaselineError

    if isinstance(error, SourceError):
        return _fail(f"{error.path.removeprefix(f'{Path.cwd().as_posix()}/')}: {error.reason}")
    if isinstance(error, (BaselineError, ConfigError, OutputError, UnknownRuleError)):
        return _fail(str(error))
    if os.environ.get("FSDPLINT_DEBUG"):
        raise error
    return _fail(_refused(error) if isinstance(error, OSError) else _internal(error))


def _fail(message: str) -> int:
    line = printable(" ".join(message[:_LONGEST].split()))
    with suppress(OSError):  # to where that is said, nothing can be printed
        click.echo(f"fsdplint: {line}{'…' if len(message) > _LONGEST else ''}", err=True)
    return FAILED


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


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="fsdplint %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find, explain, and fix mistakes in PyTorch FSDP training code.

    Exit codes: 0 if there are no findings, 1 if there are, 2 on an error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
