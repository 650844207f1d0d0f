"""`fsdplint verify`: its options, its progress messages, and its report."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fsdplint.process.terminal import (
    color_option,
    columns,
    deliver,
    printable,
    status_line,
    wants_colour,
)
from fsdplint.suggest import suggest
from fsdplint.verify.request import Request

_DEFAULTS = Request("")
_LAUNCHER = (
    ("--nnodes", "Number of nodes of the job, or MIN:MAX."),
    ("--node-rank", "Rank of this node."),
    ("--rdzv-backend", "Rendezvous backend, e.g. c10d."),
    ("--rdzv-endpoint", "Rendezvous endpoint, HOST:PORT."),
    ("--rdzv-id", "Rendezvous ID of the job."),
    ("--master-addr", "Address of the first node, without a rendezvous."),
    ("--master-port", "Port of the first node, without a rendezvous."),
)


class _Verify(click.Command):
    """A command that explains where the script's own options go."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = f"{error.format_message()} Put the script's own options after --."
            raise click.UsageError(hint) from error


def length(value: str) -> int | None:
    """Return the number of steps that an option requests; None for all.

    Raises:
        click.BadParameter: it is neither a number nor ``all``.
    """
    if value == "all":
        return None
    if not value.isdecimal() or int(value) == 0:
        raise click.BadParameter(f"{value!r} is neither a number of steps nor 'all'.")
    return int(value)


def _launcher_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, help_ in reversed(_LAUNCHER):
        command = click.option(name, help=f"{help_} Passed to torchrun.")(command)
    return command


@click.command(cls=_Verify)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--nproc",
    type=click.IntRange(1),
    metavar="N",
    default=_DEFAULTS.ranks,
    show_default=True,
    help="Number of ranks on this node.",
)
@click.option(
    "--steps",
    callback=lambda _context, _option, value: length(value),
    default=str(_DEFAULTS.steps),
    metavar="N|all",
    show_default=True,
    help="Stop after this many optimizer steps; all runs the script to its end.",
)
@click.option(
    "--device",
    type=click.Choice(("auto", "cpu", "cuda")),
    default=_DEFAULTS.device,
    show_default=True,
    help="Device to run on. cpu also runs scripts written for CUDA; auto is cuda if there is a GPU "
    "for each rank, else cpu.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=f"{_DEFAULTS.timeout:g}",
    metavar="SECONDS",
    show_default=True,
    help="Time limit for the whole run.",
)
@click.option(
    "--shrink",
    is_flag=True,
    help="Build models that take a configuration with fewer layers and a smaller width.",
)
@click.option("--reference", is_flag=True, help="Compare with a run without sharding.")
@click.option(
    "--resume", is_flag=True, help="Restart from the first checkpoint, and compare the two runs."
)
@click.option(
    "--resume-args",
    default="",
    metavar="TEXT",
    help="Arguments that make the script resume, appended to its own.",
)
@click.option(
    "--resume-nproc",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Number of ranks to resume on; repeat the option to try several. The default is --nproc.",
)
@click.option(
    "--clauses",
    callback=lambda _context, _option, value: _named(value),
    metavar="NAMES",
    help="Judge only these clauses, separated by commas.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only violations and the result.")
@click.option(
    "--output-format",
    type=click.Choice(("text", "compact", "json", "html", "sarif")),
    default="text",
    show_default=True,
    help="Report format.",
)
@click.option(
    "--output-file",
    type=click.Path(),
    help="Write the report to this file instead of standard output.",
)
@color_option
@_launcher_options
def verify(
    script: str,
    arguments: tuple[str, ...],
    nproc: int,
    steps: int | None,
    device: str,
    timeout: float,
    shrink: bool,
    reference: bool,
    resume: bool,
    resume_args: str,
    resume_nproc: tuple[int, ...],
    clauses: tuple[str, ...],
    quiet: bool,
    output_format: str,
    output_file: str | None,
    **launcher: str | None,
) -> int:
    """Run SCRIPT on several ranks and check the FSDP contract.

    SCRIPT is executed in a scratch copy of the working directory. Pass its own options after `--`.

    Exit codes: 0 if no clause is violated, 1 if one is, 2 if the script could not be run.
    """
    directory = Path.cwd()
    if (resume_args or resume_nproc) and not resume:
        raise click.UsageError("--resume-args and --resume-nproc require --resume")
    if resume and reference:
        raise click.UsageError("--resume and --reference cannot be combined")
    if resume and any(launcher.values()):
        raise click.UsageError("--resume supports only one node")
    for clause, given in (("resume", resume), ("equivalence", reference)):
        if clause in clauses and not given:
            option = "--resume" if clause == "resume" else "--reference"
            raise click.UsageError(f"the clause {clause} requires {option}")
    request = Request(
        below(script, directory),
        arguments,
        nproc,
        steps,
        device,
        timeout,
        _handed_through(launcher),
        reference=reference,
        shrink=shrink,
        resume=(resume_nproc or (nproc,)) if resume else (),
        resume_arguments=_words(resume_args),
        clauses=clauses,
    )
    return _run(request, directory, output_format, output_file, quiet)


def _named(value: str | None) -> tuple[str, ...]:
    """Return the clauses that an option names.

    Raises:
        click.BadParameter: there is no such clause.
    """
    from fsdplint.verify.clauses import NAMES

    if value is None:
        return ()
    names = tuple(filter(None, (name.strip() for name in value.split(","))))
    if not names:
        raise click.BadParameter("name at least one clause.")
    for name in names:
        if name not in NAMES:
            question = suggest(name, NAMES)
            raise click.BadParameter(f"{name!r} is not a clause{question or '.'}")
    return names


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--resume-args") from error


def below(script: str, directory: Path) -> str:
    """Return the script's path relative to the directory that is copied.

    Raises:
        click.UsageError: it is outside.
    """
    path = Path(os.path.relpath(script, directory))
    if path.parts[0] == os.pardir or path.is_absolute():
        raise click.UsageError(
            f"{script} is outside the working directory, which is all that verify copies"
        )
    return path.as_posix()


def _handed_through(launcher: dict[str, str | None]) -> tuple[str, ...]:
    given = ((name, launcher[name[2:].replace("-", "_")]) for name, _ in _LAUNCHER)
    return tuple(f"{name}={value}" for name, value in given if value is not None)


def _run(
    request: Request, directory: Path, format_: str, output_file: str | None, quiet: bool
) -> int:
    """Verify, print or write the report, and return the exit code."""
    from fsdplint.verify import run
    from fsdplint.verify.remedies import with_remedies
    from fsdplint.verify.report import render
    from fsdplint.verify.report.ending import summary
    from fsdplint.verify.workspace import VerifyError

    ensure_torch()
    _expect_folder(output_file)
    if not quiet:
        click.echo(_announcement(request, directory), err=True)
    try:
        with status_line() as progress:
            verification = run.verify(request, directory, progress=progress)
            progress("checking the code for related rules")
            verification = with_remedies(verification, directory)
    except VerifyError as error:
        raise click.ClickException(str(error)) from error
    color = output_file is None and wants_colour(sys.stdout)
    width = columns(sys.stdout)
    text = render(verification, format_, directory, color=color, width=width, quiet=quiet)
    deliver(text, output_file, color)
    if output_file is not None:
        click.echo(f"fsdplint: {printable(summary(verification))}", err=True)
    return verification.exit_code


def _expect_folder(output_file: str | None) -> None:
    """End the command, before anything has run, where the report could not be written."""
    if output_file is not None and not Path(output_file).absolute().parent.is_dir():
        raise click.ClickException(f"{output_file}: No such file or directory")


def ensure_torch() -> None:
    """End the command with one sentence if PyTorch is missing or too old."""
    from fsdplint.verify.run import missing

    if reason := missing():
        raise click.ClickException(reason)


def _announcement(request: Request, directory: Path) -> str:
    ranks = f"{request.ranks} rank{'s'[: request.ranks != 1]}"
    again = f", then resuming on {', '.join(map(str, request.resume))}" if request.resume else ""
    return printable(
        f"fsdplint: running {request.script} on {ranks}{again}, in a scratch copy of "
        f"{directory}; files it writes elsewhere stay"
    )
