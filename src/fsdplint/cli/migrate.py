"""`fsdplint migrate`: plan, show, prove and write a migration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsdplint.cli import CLEAN, FINDINGS
from fsdplint.process.terminal import color_option, printable, progress, show, wants_colour

if TYPE_CHECKING:
    from fsdplint.migrate.plan import Plan
    from fsdplint.migrate.step import Migration, Question

# The module of each migration, and what it does.
_MIGRATIONS: Mapping[str, tuple[str, str]] = {
    "fsdp2": ("fsdplint.migrate.fsdp2", "Move a program from FSDP1 to FSDP2."),
    "ddp": ("fsdplint.migrate.ddp", "Move a program from DistributedDataParallel to FSDP2."),
    "single": ("fsdplint.migrate.single", "Move a program from one GPU to FSDP2 on several."),
    "dcp": ("fsdplint.migrate.dcp", "Move checkpoints from torch.save to distributed ones."),
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a migration, which its help describes."""

    diff: bool
    yes: bool
    answers: str | None
    proving: bool
    unproven: bool
    nproc: int
    verify_args: str
    steps: str
    timeout: float


class _Migrations(click.Group):
    """Migrations that are imported when they are given."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*_MIGRATIONS, "checkpoint"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "checkpoint":
            from fsdplint.cli.migrate_checkpoint import checkpoint

            return checkpoint
        return _command(cmd_name) if cmd_name in _MIGRATIONS else None


@click.group(cls=_Migrations)
def migrate() -> None:
    """Migrate a program, with a plan and a diff before anything is written."""


def _command(name: str) -> click.Command:
    module, text = _MIGRATIONS[name]

    @click.command(name, help=f"{text}\n\n{_HELP}")
    @click.argument("paths", nargs=-1, required=True, type=click.Path())
    @click.option("--diff", is_flag=True, help="Show the plan and the diff; write nothing.")
    @click.option(
        "-y",
        "--yes",
        is_flag=True,
        help="Take the first answer to each question; write what --verify proves.",
    )
    @click.option(
        "--answers", type=click.Path(), help="Read the answers to questions from this TOML file."
    )
    @click.option(
        "--verify",
        "proving",
        is_flag=True,
        help="Write only if PATHS[0] trains the same before and after on several ranks.",
    )
    @click.option("--unproven", is_flag=True, help="Write without a proof.")
    @click.option("--nproc", default=2, show_default=True, help="Ranks that --verify uses.")
    @click.option("--verify-args", default="", help="The script's own arguments, for --verify.")
    @click.option("--steps", default="", help="Optimizer steps that --verify runs, or all.")
    @click.option("--timeout", default=300.0, show_default=True, help="Seconds for a --verify run.")
    @color_option
    def command(paths: tuple[str, ...], **options: Any) -> int:  # click's values, checked by it
        return _run(getattr(import_module(module), name.upper()), paths, Options(**options))

    return command


_HELP = (
    "Print a plan: what changes where, what cannot be decided, and what has to be changed by hand. "
    "Then print the diff, and ask before writing what no run has proven. A program that cannot be "
    "migrated completely is not changed at all."
)


_NOT_PROVEN = "Not proven: only a run tells whether it trains the same; --verify makes one."


def _run(migration: Migration, paths: tuple[str, ...], options: Options) -> int:
    from fsdplint.migrate.step import MigrationError
    from fsdplint.migrate.text import plan_as_text, summary

    if options.unproven and (options.proving or options.diff):
        other = "--verify" if options.proving else "--diff"
        raise click.UsageError(f"--unproven writes; it does not go with {other}")
    try:
        plan = _planned(migration, paths, options)
    except MigrationError as error:
        raise click.ClickException(str(error)) from error
    for key in plan.unasked:
        click.echo(f"fsdplint: {printable(key)}: nothing asks for this answer", err=True)
    show(plan_as_text(plan))
    click.echo(summary(plan))
    if plan.is_complete and plan.files and not options.proving:
        click.echo(_NOT_PROVEN)
    if not plan.entries:
        return CLEAN
    if plan.files:
        _show_diff(plan)
    if not plan.is_complete:
        click.echo("Nothing was written.", err=True)
        return FINDINGS
    if options.diff or not _agreed(options):
        return FINDINGS
    if options.proving and not _proved(migration, plan, paths[0], options):
        return FINDINGS
    return _write(plan)


def _planned(migration: Migration, paths: tuple[str, ...], options: Options) -> Plan:
    """Return the plan with all questions answered, as far as somebody answers them."""
    from fsdplint.migrate.plan import make_plan
    from fsdplint.migrate.step import Question

    answers = _answers(options.answers)
    while True:
        with progress("fsdplint: planning…"):
            plan = make_plan(migration, paths, answers)
        questions = plan.of(Question)
        asking = sys.stdin is not None and sys.stdin.isatty() and not options.diff
        if not questions or not (options.yes or asking):
            return plan
        for entry in questions:
            assert isinstance(entry.found, Question)
            answers[entry.key] = _asked(entry.key, entry.found, options.yes)


def _asked(key: str, question: Question, yes: bool) -> str:
    first = question.choices[0]
    if yes:
        click.echo(f"{printable(key)}: {printable(question.text)} {first}")
        return first
    choice = click.Choice(question.choices)
    answer: str = click.prompt(f"{printable(key)}: {question.text}", default=first, type=choice)
    return answer


def _answers(path: str | None) -> dict[str, str]:
    """Return the answers in a TOML file of `"train.py:41:topic" = "answer"` lines.

    Raises:
        click.ClickException: it cannot be read, or is not of this form.
    """
    if path is None:
        return {}
    from fsdplint.toml import loads

    try:
        table = loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise click.ClickException(f"{path}: not valid TOML: {error}") from error
    for key, answer in table.items():
        if not isinstance(answer, str):
            raise click.ClickException(f"{path}: the answer to {key!r} is not a string")
    return table


def _show_diff(plan: Plan) -> None:
    from fsdplint.outcome import Changes
    from fsdplint.report.diff import diff
    from fsdplint.report.style import Style

    color = wants_colour(sys.stdout)
    exact = sys.stdout is None or not sys.stdout.isatty()
    show(diff(Changes(plan.outcome, plan.files, (), ()), Style(color), exact), color=True)


def _agreed(options: Options) -> bool:
    if options.unproven or (options.yes and options.proving):
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        click.echo(
            "Nothing was written: --yes --verify writes what a run proves, --unproven writes "
            "without a proof.",
            err=True,
        )
        return False
    return click.confirm(f"Write these changes{'' if options.proving else ' without a proof'}?")


def _proved(migration: Migration, plan: Plan, script: str, options: Options) -> bool:
    """Run the script before and after, and return whether it trains and saves the same."""
    from fsdplint.verify.command import below, length
    from fsdplint.verify.equivalence import proved
    from fsdplint.verify.gate import overlay, split
    from fsdplint.verify.request import Request

    steps = options.steps or ("all" if migration.whole_run else "3")
    request = Request(
        below(script, Path.cwd()),
        split(options.verify_args),
        options.nproc,
        steps=length(steps),
        timeout=options.timeout,
    )
    return proved(
        request,
        overlay(plan.files, Path.cwd()),
        corrected=overlay(plan.corrected, Path.cwd()),
        before_ranks=migration.ranks_before,
        shards=migration.shards,
    )


def _write(plan: Plan) -> int:
    from fsdplint.files.writing import write

    write(*plan.files)
    click.echo(f"Wrote {len(plan.files)} file{'s'[: len(plan.files) != 1]}.")
    return CLEAN
