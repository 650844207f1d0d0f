"""`fsdplint baseline`: its commands and their messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fsdplint.check import check
from fsdplint.cli.options import opting_in
from fsdplint.files.file import absolute
from fsdplint.files.links import home
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import deliver, printable, progress, shown_path
from fsdplint.report.places import failure_line, shown
from fsdplint.settings.config import Settings, settings_for
from fsdplint.settings.rule_selection import OptIn
from fsdplint.suppression.baseline import (
    NAME,
    Baseline,
    BaselineError,
    Scope,
    gone,
    load,
    pruned,
    text,
    updated,
)
from fsdplint.suppression.comments import NEVER_SUPPRESSED

Paths = tuple[str, ...]


def gone_line(whole: Outcome, baseline: Baseline, scope: Scope) -> str:
    """Return one line: how many findings of ``baseline`` no longer exist; "" if none."""
    count = len(gone(whole, baseline, scope))
    if not count:
        return ""
    what = "1 finding no longer exists" if count == 1 else f"{count} findings no longer exist"
    return f"{_shown(baseline)}: {what}; run `fsdplint baseline prune` to remove"


@click.group("baseline")
def baseline() -> None:
    """Record existing findings so that only new ones are reported.

    `check` omits the findings of the baseline that --baseline or the settings name.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        opting_in,
        click.option("--isolated", is_flag=True, help="Ignore all settings files."),
        click.option(
            "--config",
            type=click.Path(),
            help="Use this settings file instead of the nearest pyproject.toml or fsdplint.toml.",
        ),
        click.option(
            "--file",
            type=click.Path(),
            help=f"Baseline file. The default is the one that the settings name, or {NAME}.",
        ),
        click.argument("paths", nargs=-1, type=click.Path()),
    ):
        command = decorate(command)
    return command


@baseline.command()
@_options
@click.option("--add", is_flag=True, help="Keep entries whose findings no longer exist.")
def write(
    paths: Paths,
    file: str | None,
    config: str | None,
    isolated: bool,
    add: bool,
    preview: bool,
    pedantic: bool,
) -> None:
    """Record all findings in PATHS (default: the current folder).

    Entries for other paths and for rules that are not selected stay.
    """
    paths = paths or (".",)
    settings = settings_for(paths, config, isolated, OptIn(preview, pedantic))
    target = _target(file, settings, paths, config)
    old = load(target) if Path(target).exists() else Baseline(absolute(target))
    outcome = _checked(paths, settings, target)
    new = updated(outcome, old, Scope(paths, settings), add)
    deliver(text(new), target)
    _print_change(old, new)
    for finding in outcome.findings:
        if finding.rule in NEVER_SUPPRESSED:
            where = shown(outcome, finding.span.path)
            click.echo(f"fsdplint: {where}: {finding.rule} cannot be added to a baseline", err=True)
    if settings.baseline is None or absolute(target) != absolute(settings.baseline):
        name = printable(target)
        click.echo(f'To use it, pass --baseline {name} or set baseline = "{name}".')


@baseline.command()
@_options
def prune(
    paths: Paths,
    file: str | None,
    config: str | None,
    isolated: bool,
    preview: bool,
    pedantic: bool,
) -> None:
    """Remove entries whose findings no longer exist.

    Entries for files outside PATHS (default: the current folder) stay.
    """
    paths = paths or (".",)
    settings = settings_for(paths, config, isolated, OptIn(preview, pedantic))
    old = load(_target(file, settings, paths, config))
    outcome = _checked(paths, settings, old.file)
    new = pruned(outcome, old, Scope(paths, settings))
    if new != old:
        deliver(text(new), old.file)
    _print_change(old, new)


def _target(file: str | None, settings: Settings, paths: Paths, config: str | None) -> str:
    """Return the file to write; settings found on disk may only name one in their project."""
    if not (file or config) and (named := settings.baseline):
        homes = (home(Path(absolute(path))) for path in paths)
        if not any(Path(named).is_relative_to(folder) for folder in homes):
            raise BaselineError(
                f"{named}: not written: it is outside the project; pass it with --file"
            )
    return _from_here(file or settings.baseline or NAME)


def _checked(paths: Paths, settings: Settings, file: str) -> Outcome:
    """Return the outcome of checking ``paths``; fail if anything could not be checked."""
    with progress("fsdplint: checking…"):
        outcome = check(paths, settings)
    for failure in outcome.failures:
        click.echo(f"fsdplint: {failure_line(outcome, failure)}", err=True)
    if outcome.failures:
        file = printable(_from_here(file))
        raise click.ClickException(f"{file}: not written, because not everything could be checked")
    return outcome


def _print_change(old: Baseline, new: Baseline) -> None:
    before, after = ({(k.equal, k.occurrence) for k in each.known} for each in (old, new))
    count = f"{len(after)} finding{'s'[: len(after) != 1]}"
    changed = f"{len(after - before)} added, {len(before - after)} removed"
    click.echo(f"{_shown(new)}: {count} ({changed}).")


def _shown(baseline: Baseline) -> str:
    return shown_path(_from_here(baseline.file))


def _from_here(file: str) -> str:
    return file.removeprefix(f"{Path.cwd().as_posix()}/")
