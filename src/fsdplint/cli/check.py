"""`fsdplint check`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from fsdplint.cache.ir_pack import Packs
from fsdplint.cache.recording import Recording
from fsdplint.cli import CLEAN, FAILED, FINDINGS
from fsdplint.cli.options import Options, check_options
from fsdplint.cli.outputs import Output, expect_apart, outputs
from fsdplint.cli.plan import Plan, planned
from fsdplint.files import disk
from fsdplint.files.decoding import Skipped
from fsdplint.files.file import SourceFile, from_bytes, too_large
from fsdplint.outcome import Changes, Outcome
from fsdplint.process.terminal import deliver, progress, wants_colour, wants_links
from fsdplint.report import STATISTICS, render
from fsdplint.report.places import early_stop_lines, failure_line
from fsdplint.report.style import Style
from fsdplint.settings.config import settings_for

_STDIN = "-"


@click.command()
@check_options
@click.pass_obj
def check(recording: Recording | None, /, paths: tuple[str, ...], **given: Any) -> int:
    """Check files and folders (default: the current folder).

    In folders, check the files that git does not ignore: .py, .pyi, .ipynb, config files of
    accelerate (.yaml, .yml, .json) and launch scripts. The path `-` means standard input.
    """
    options = Options(**given)
    options.expect_consistent(paths)
    paths, piped = _inputs(paths, options.stdin_filename)
    # Changes to files never rest on the cache of an earlier run.
    packs = Packs(on_disk=recording is not None and not options.changes)
    if options.watch:
        from fsdplint.cli.watch import watch

        used = list(filter(None, (options.config, options.baseline)))
        return watch(lambda: _run(options, paths, piped, packs, None), paths, used, options.quiet)
    return _run(options, paths, piped, packs, recording)


def _run(
    options: Options,
    paths: tuple[str, ...],
    piped: Mapping[str, SourceFile],
    packs: Packs,
    recording: Recording | None,
) -> int:
    """Make a plan, run or show it, and return the exit code."""
    plan = planned(options, paths, piped, packs)
    reports = _reports(options, paths)
    if options.show_files or options.show_settings:
        from fsdplint.cli.show import show_files, show_settings

        return show_files(plan) if options.show_files else show_settings(plan)
    return _checked(plan, options, paths, reports, recording)


def _checked(
    plan: Plan,
    options: Options,
    paths: tuple[str, ...],
    reports: Sequence[Output],
    recording: Recording | None,
) -> int:
    """Run the plan, and return the exit code."""
    with progress("fsdplint: checking…"):
        wholes = plan.wholes({})
        outcome = plan.new(wholes)
    expect_apart(reports, plan.used(wholes))
    changes = None
    if options.changes:
        from fsdplint.cli.changes import changed  # with all that fixes take

        full = any(report.format_ == "full" and not report.file for report in reports)
        reasons = not (full or options.quiet or options.fix_only)
        outcome, changes = changed(outcome, plan.recheck, plan.piped, paths[0], options, reasons)
    gone = list(plan.gone(wholes))
    strict = plan.is_strict(wholes)
    aside = options.diff or bool(changes and plan.piped)
    said = _said(_lines(plan, outcome, options, gone, strict))
    said += _report(outcome, () if options.fix_only else reports, options, aside)
    fails = bool(gone) or plan.fails_on(outcome.findings)
    code = _exit_code(outcome, changes, options, fails, strict)
    if recording and not (options.changes or plan.piped or any(r.file for r in reports)):
        recording.keep(said, code)
    plan.packs.save()
    return code


def _exit_code(
    outcome: Outcome, changes: Changes | None, options: Options, fails: bool, strict: bool
) -> int:
    """Return the exit code of a run.

    Args:
        fails: whether there is something to report on which the run fails.
        strict: whether an early stop counts as a failure.
    """
    if outcome.failures or (strict and outcome.partly):
        return FAILED
    changed = bool(changes and changes.files)
    fails = fails and not options.fix_only
    fails |= changed and (options.diff or options.exit_non_zero_on_fix)
    return FINDINGS if fails and not options.exit_zero else CLEAN


def _reports(options: Options, paths: tuple[str, ...]) -> tuple[Output, ...]:
    shared = settings_for(paths, options.config, options.isolated, options.opt_in)
    reports = outputs(options.formats, options.output_file, shared.output_format)
    if options.fix_only and any(report.file for report in reports):
        raise click.UsageError("--fix-only prints no report, so none can go to a file")
    other = {report.format_ for report in reports} - STATISTICS.keys()
    if options.statistics and other:
        raise click.UsageError(
            f"--statistics does not support {min(other)}; use {', '.join(STATISTICS)}"
        )
    return reports


def _inputs(
    paths: tuple[str, ...], stdin_filename: str | None
) -> tuple[tuple[str, ...], dict[str, SourceFile]]:
    """Return the paths to check, and standard input under the name that it is given."""
    if _STDIN not in paths:
        if stdin_filename is not None:
            raise click.UsageError("--stdin-filename requires the path `-`, standard input")
        return paths or (".",), {}
    if len(paths) > 1:
        raise click.UsageError("the path `-`, standard input, cannot be combined with other paths")
    name = stdin_filename or "<stdin>"
    data = sys.stdin.buffer.read(disk.MOST + 1)
    if len(data) > disk.MOST:
        raise Skipped(name, too_large(disk.MOST))
    source = from_bytes(data, name)
    return (source.path,), {source.path: source}


def _lines(
    plan: Plan, outcome: Outcome, options: Options, gone: Sequence[str], strict: bool
) -> list[str]:
    """Return what to print beside the report: errors, and unless --quiet is given, notes."""
    lines = [*gone, *(failure_line(outcome, failure) for failure in outcome.failures)]
    if strict or not options.quiet:
        lines += early_stop_lines(outcome)
    if options.verbose:
        from fsdplint.cli.show import verbose_lines

        lines += verbose_lines(plan, outcome)
    return lines


def _said(lines: Iterable[str]) -> list[tuple[bool, str]]:
    """Print ``lines`` on standard error, and return them as `_report` does."""
    said = [(True, f"fsdplint: {line}\n") for line in lines]
    for _, text in said:
        click.echo(text, nl=False, err=True)
    return said


def _report(
    outcome: Outcome, reports: Sequence[Output], options: Options, aside: bool
) -> list[tuple[bool, str]]:
    """Write reports and print reports, on standard error if standard output is another's.

    Returns:
        What was printed, in order, and whether on standard error.
    """
    said = []
    # Files first: who reads standard output may close it.
    for report in sorted(reports, key=lambda report: report.file is None):
        stream = sys.stderr if aside else sys.stdout
        style = Style(summary=not options.quiet)
        if report.file is None:
            style = Style(wants_colour(stream), wants_links(stream), summary=not options.quiet)
        text = render(outcome, report.format_, style=style, counts=options.statistics)
        deliver(text, report.file, style.color or style.links, aside)
        if report.file is None:
            said.append((aside, text))
    return said
