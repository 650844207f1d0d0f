"""The plan of a run of `check`: its paths in groups, each with its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cache.ir_pack import Packs
from fsdplint.check import check as run
from fsdplint.cli.options import Options, split
from fsdplint.files.discover import Patterns, searched
from fsdplint.files.file import SourceFile, absolute
from fsdplint.finding import Finding, Severity
from fsdplint.outcome import Account, Outcome, State, merged, united
from fsdplint.settings.config import Group, Settings, groups_for, select_rules

if TYPE_CHECKING:
    from fsdplint.suppression.baseline import Baseline


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

    def fails_on(self, findings: Iterable[Finding]) -> bool:
        """Return whether one of ``findings`` is so severe that the run fails."""
        return any(f.severity.is_at_least(self._least_severity(f.span.path)) for f in findings)

    def gone(self, wholes: Sequence[Outcome]) -> Iterator[str]:
        """Yield a line for each baseline with findings that are no longer in ``wholes``."""
        for group, whole, old in zip(self.groups, wholes, self.baselines, strict=True):
            if old and (line := _gone(whole, old, group)):
                yield line

    def _least_severity(self, path: str) -> Severity:
        """Return the least severity that fails for ``path``.

        Of several groups with the path, the one with the nearest given folder counts. A file that
        is in none, which a given one imports, counts by the strictest.
        """
        near = [
            (len(given), group.settings.fail_on)
            for group in self.groups
            for given in map(absolute, group.paths)
            if Path(path).is_relative_to(given)
        ]
        if near:
            return max(near, key=lambda each: each[0])[1]
        every = [group.settings.fail_on for group in self.groups]
        return max(every, key=list(Severity).index)


def planned(
    options: Options, paths: tuple[str, ...], piped: Mapping[str, SourceFile], packs: Packs
) -> Plan:
    """Return the plan for ``paths`` by their settings and the command line."""
    known = groups_for(paths, options.config, options.isolated, options.opt_in)
    groups = tuple(_narrowed(group, options) for group in known)
    baselines = (_baseline(g.settings, options.baseline, options.no_baseline) for g in groups)
    return Plan(groups, tuple(baselines), piped, packs)


def _narrowed(group: Group, options: Options) -> Group:
    """Return ``group`` as the command line narrows it: rules, excluded paths, what fails."""
    settings = select_rules(group.settings, *options.selectors)
    settings = replace(
        settings,
        exclude=_exclude(settings.exclude, options),
        strict=settings.strict or options.strict,
        fail_on=Severity(options.fail_on or settings.fail_on),
    )
    forced = options.force_exclude
    paths = searched(group.paths, settings.exclude) if forced else group.paths
    excluded = tuple(path for path in group.paths if path not in paths)
    return replace(group, paths=paths, settings=settings, excluded=excluded)


def _exclude(configured: tuple[Patterns, ...], options: Options) -> tuple[Patterns, ...]:
    """Return the patterns of the settings as --exclude replaces and --extend-exclude adds to."""
    own = _patterns("--exclude", options.exclude) or configured
    return own + _patterns("--extend-exclude", options.extend_exclude)


def _patterns(option: str, given: tuple[str, ...]) -> tuple[Patterns, ...]:
    if not given:
        return ()
    try:
        return (Patterns.of(Path.cwd().as_posix(), split(given)),)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


def _excluding(outcome: Outcome, group: Group) -> Outcome:
    """Return ``outcome`` with an account of each path that was given and excluded."""
    left = [Account(absolute(path), State.SKIPPED, "excluded") for path in group.excluded]
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
