"""`fsdplint check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from fsdplint.cache.ir_pack import Packs
from fsdplint.cache.recording import Recording
from fsdplint.check import check as run
from fsdplint.cli import CLEAN, FAILED, FINDINGS
from fsdplint.cli.options import Options, Output, check_options, expect_apart, outputs
from fsdplint.files import disk
from fsdplint.files.decoding import Skipped
from fsdplint.files.discover import searched
from fsdplint.files.file import SourceFile, absolute, from_bytes, too_large
from fsdplint.outcome import Account, Outcome, State, merged, united
from fsdplint.process.terminal import deliver, progress, wants_colour, wants_links
from fsdplint.report import STATISTICS, render
from fsdplint.report.places import early_stop_lines, failure_line
from fsdplint.report.style import Style, plain
from fsdplint.settings.config import Group, Settings, groups_for, select_rules, settings_for

if TYPE_CHECKING:
    from fsdplint.suppression.baseline import Baseline

_STDIN = "-"


@dataclass(frozen=True, slots=True)
class Plan:
    """The files to check, in groups with separate settings and baselines.

    Attributes:
        piped: code from standard input.
        packs: the IR of files, including that of other runs unless this run changes files.
    """

    groups: tuple[Group, ...]
    baselines: tuple[Baseline | None, ...]
    piped: Mapping[str, SourceFile]
    packs: Packs

    def wholes(self, overlay: Mapping[str, SourceFile]) -> list[Outcome]:
        """Return the outcome of each group, reading ``overlay`` instead of the files on disk."""
        whole = {**self.piped, **overlay}
        return [
            _excluding(run(group.paths, group.settings, whole, packs=self.packs), group)
            for group in self.groups
        ]

    def new(self, wholes: Sequence[Outcome]) -> Outcome:
        """Return one outcome: the findings of ``wholes`` that are in no baseline."""
        return merged(list(map(_new, wholes, self.baselines)))

    def recheck(self, overlay: Mapping[str, SourceFile]) -> Outcome:
        """Return the outcome of reading ``overlay`` instead of the files on disk."""
        return self.new(self.wholes(overlay))

    def used(self, wholes: Sequence[Outcome]) -> Iterator[str]:
        """Yield the files that no report may replace."""
        yield from (account.path for whole in wholes for account in whole.accounts)
        yield from (old.file for old in self.baselines if old)

    def is_strict(self, wholes: Sequence[Outcome]) -> bool:
        """Return whether the analysis stopped early in a group for which that is a failure."""
        pairs = zip(self.groups, wholes, strict=True)
        return any(group.settings.strict and whole.partly for group, whole in pairs)

    def gone(self, wholes: Sequence[Outcome]) -> Iterator[str]:
        """Yield a line for each baseline with findings that are no longer in ``wholes``."""
        for group, whole, old in zip(self.groups, wholes, self.baselines, strict=True):
            if old and (line := _gone(whole, old, group)):
                yield line


@click.command()
@check_options
@click.pass_obj
def check(recording: Recording | None, /, paths: tuple[str, ...], **given: Any) -> int:
    """Check files and folders (default: the current folder).

    In folders, check the .py, .pyi, and .ipynb files that git does not ignore. The path `-` means
    standard input.
    """
    options = Options(**given)
    options.expect_consistent(paths)
    paths, piped = _inputs(paths, options.stdin_filename)
    # Changes to files never rest on the cache of an earlier run.
    packs = Packs(on_disk=recording is not None and not options.changes)
    plan = _planned(options, paths, piped, packs)
    reports = _reports(options, paths)
    with progress("fsdplint: checking…"):
        wholes = plan.wholes({})
        outcome = plan.new(wholes)
    expect_apart(reports, plan.used(wholes))
    changes = None
    if options.changes:
        from fsdplint.cli.changes import changed  # with all that fixes take

        full = any(report.format_ == "full" and not report.file for report in reports)
        outcome, changes = changed(outcome, plan.recheck, piped, paths[0], options, quiet=full)
    gone = list(plan.gone(wholes))
    aside = options.diff or bool(changes and piped)
    said = _report(outcome, reports, options.statistics, gone, aside)
    more = bool(gone or (options.diff and changes and changes.files))
    code = _exit_code(outcome, options, more, plan.is_strict(wholes))
    if recording and not (options.changes or piped or any(report.file for report in reports)):
        recording.keep(said, code)
    packs.save()
    return code


def _exit_code(outcome: Outcome, options: Options, more: bool, strict: bool) -> int:
    """Return the exit code of a run.

    Args:
        more: whether there is something to report besides findings.
        strict: whether an early stop counts as a failure.
    """
    if outcome.failures or (strict and outcome.partly):
        return FAILED
    return FINDINGS if (outcome.findings or more) and not options.exit_zero else CLEAN


def _planned(
    options: Options,
    paths: tuple[str, ...],
    piped: Mapping[str, SourceFile],
    packs: Packs,
) -> Plan:
    known = groups_for(paths, options.config, options.isolated, options.preview)
    groups = tuple(_narrowed(group, options) for group in known)
    baselines = (_baseline(g.settings, options.baseline, options.no_baseline) for g in groups)
    return Plan(groups, tuple(baselines), piped, packs)


def _reports(options: Options, paths: tuple[str, ...]) -> tuple[Output, ...]:
    shared = settings_for(paths, options.config, options.isolated, options.preview)
    reports = outputs(options.formats, options.output_file, shared.output_format)
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


def _narrowed(group: Group, options: Options) -> Group:
    """Return ``group`` as the command line narrows it: rules, excluded paths and strictness."""
    settings = select_rules(group.settings, *options.selectors)
    settings = replace(settings, strict=settings.strict or options.strict)
    forced = options.force_exclude
    paths = searched(group.paths, settings.exclude) if forced else group.paths
    excluded = tuple(path for path in group.paths if path not in paths)
    return Group(paths, settings, excluded)


def _excluding(outcome: Outcome, group: Group) -> Outcome:
    """Return ``outcome`` with an account of each path that was given and excluded."""
    left = [
        Account(absolute(path), State.SKIPPED, "excluded by the settings")
        for path in group.excluded
    ]
    return replace(outcome, accounts=united([*outcome.accounts, *left]))


# Baselines are imported where there is one, with what it takes to know findings by.


def _baseline(settings: Settings, given: str | None, none: bool) -> Baseline | None:
    known = None if none else given or settings.baseline
    if not known:
        return None
    from fsdplint.suppression.baseline import load

    return load(known)


def _new(outcome: Outcome, old: Baseline | None) -> Outcome:
    if old is None:
        return outcome
    from fsdplint.suppression.baseline import without

    return without(outcome, old)


def _gone(whole: Outcome, old: Baseline, group: Group) -> str:
    from fsdplint.cli.baseline import gone_line
    from fsdplint.suppression.baseline import Scope

    return gone_line(whole, old, Scope(group.paths, group.settings))


def _report(
    outcome: Outcome, reports: Sequence[Output], counts: bool, gone: Sequence[str], aside: bool
) -> list[tuple[bool, str]]:
    """Write reports and print reports, on standard error if standard output is another's.

    Returns:
        What was printed, in order, and whether on standard error.
    """
    failures = (failure_line(outcome, failure) for failure in outcome.failures)
    lines = [*gone, *failures, *early_stop_lines(outcome)]
    said = [(True, f"fsdplint: {line}\n") for line in lines]
    for _, text in said:
        click.echo(text, nl=False, err=True)
    # Files first: who reads standard output may close it.
    for report in sorted(reports, key=lambda report: report.file is None):
        stream = sys.stderr if aside else sys.stdout
        style = plain
        if report.file is None:
            style = Style(wants_colour(stream), wants_links(stream))
        text = render(outcome, report.format_, style=style, counts=counts)
        deliver(text, report.file, style != plain, aside)
        if report.file is None:
            said.append((aside, text))
    return said
