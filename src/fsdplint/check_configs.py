"""The part of a run that is about files of other kinds than Python: files in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from fsdplint.configs.kinds import KINDS, SECTION, Kind, lines_of_code
from fsdplint.configs.projects import Projects, projects_of
from fsdplint.files import disk
from fsdplint.files.decoding import Skipped, SourceError
from fsdplint.files.file import SourceFile, from_bytes, regular, too_large
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.finding import Finding, Span
from fsdplint.outcome import Account, State
from fsdplint.settings.config import Settings

if TYPE_CHECKING:
    from fsdplint.engine.project.launch_settings import LaunchSettings

_MOST = 1_000_000
"""Bytes of the largest file that is read; config files have a few thousand."""
_HEAD = 50_000
"""Bytes of a larger file that are read to see whether it would be of a kind."""
_OTHER = "no settings of FSDP and no launch line that fsdplint knows"

_WORDS = tuple(word.encode() for kind in KINDS for word in kind.words)


@dataclass(slots=True)
class ConfigOutcome:
    """The end of the part: like `Outcome`, for config files.

    Attributes:
        values: by path, what the rules judge, and config files for other kinds of training.
    """

    findings: list[Finding] = field(default_factory=list)
    sources: dict[str, SourceFile] = field(default_factory=dict)
    failures: list[SourceError] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)


def check_configs(
    found: Iterable[str],
    named: Collection[str],
    settings: Settings,
    overlay: Mapping[str, SourceFile],
    *,
    alone: bool = False,
) -> ConfigOutcome:
    """Return the findings in files of other kinds.

    Args:
        found: the files of a search, named ones too.
        named: absolute paths of files that are accounted for, whatever they are.
        overlay: by absolute path, what to read instead of a file on disk.
        alone: whether the files of the overlay are all there is.
    """
    outcome = ConfigOutcome()
    projects = projects_of(overlay, alone=alone)
    for source in _candidates(found, outcome.accounts):
        if source.path not in named:
            _check(overlay.get(source.path, source), settings, projects, outcome)
    for path in sorted(named):
        try:
            source = overlay.get(path) or named_config(path)
        except SourceError as error:
            outcome.failures.append(error)
            outcome.accounts.append(_failed(path, error))
            continue
        if not _check(source, settings, projects, outcome):
            outcome.accounts.append(Account(path, State.IRRELEVANT, _OTHER))
    return outcome


def candidates(found: Iterable[str]) -> list[str]:
    """Return the files of a search that may be of a kind, by what is in them."""
    return [source.path for source in _candidates(found)]


def values_of(sources: Mapping[str, SourceFile]) -> Iterator[tuple[str, object]]:
    """Yield what files hold that the rules know, each with its path; of a template nothing."""
    projects = projects_of(sources)
    for path, source in sources.items():
        for kind in KINDS:
            with suppress(InvalidSyntax):
                value = kind.read(source, projects) if kind.is_of(source) else None
                if value is not None:
                    yield path, value


def read_around(found: Iterable[str], outcome: ConfigOutcome) -> None:
    """Add what files of a search hold that are not checked, but may be launched with the code."""
    projects = projects_of({})
    for source in _candidates(found):
        if source.path in outcome.values:
            continue
        for kind in KINDS:
            with suppress(InvalidSyntax):
                if kind.tells_launch and kind.is_of(source):
                    value = kind.read(source, projects)
                    if value is not None:
                        outcome.values[source.path] = value
                        outcome.sources[source.path] = source


def launches_in(root: Path, configs: ConfigOutcome) -> tuple[LaunchSettings, ...]:
    """Return the settings of FSDP that the programs below ``root`` are launched with."""
    return launches_of(root, configs.values)


def launches_of(root: Path, values: Mapping[str, object]) -> tuple[LaunchSettings, ...]:
    """Return the settings of FSDP that config files and launch scripts below ``root`` give."""
    inside = {p: value for p, value in values.items() if Path(p).is_relative_to(root)}
    if not inside:
        return ()
    from fsdplint.configs.launch import launch_settings

    return launch_settings(inside)


def _candidates(
    found: Iterable[str], accounts: list[Account] | None = None
) -> Iterator[SourceFile]:
    """Yield the files of a search that may be of a kind; most are not.

    Args:
        accounts: what to add those to that may be of a kind and cannot be read.
    """
    for path in found:
        with suppress(OSError):
            is_large = disk.status(path).st_size > _MOST
            data = disk.read(path, _HEAD) if is_large else disk.content(path, _MOST)
            if not any(word in data for word in _WORDS):
                continue
            try:
                if is_large:
                    raise Skipped(path, too_large(_MOST))
                yield from_bytes(data, path)
            except SourceError as error:
                if accounts is not None and any(kind.admits(path, data) for kind in KINDS):
                    accounts.append(Account(path, State.SKIPPED, error.reason))


def named_config(path: str) -> SourceFile:
    """Return the file at ``path``.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        return from_bytes(regular(Path(path), _MOST), path)
    except OSError as error:
        raise SourceError(path, error.strerror or str(error)) from error


def _failed(path: str, error: SourceError) -> Account:
    state = State.SKIPPED if isinstance(error, Skipped) else State.FAILED
    return Account(path, state, error.reason)


def _check(
    source: SourceFile, settings: Settings, projects: Projects, outcome: ConfigOutcome
) -> bool:
    """Add what the rules find in a file, and return whether it is of a kind that they know."""
    from fsdplint.configs.accelerate import OtherConfig
    from fsdplint.configs.document import is_template
    from fsdplint.rules import RULES
    from fsdplint.run_rules import judge_on
    from fsdplint.suppression import comments

    path, enabled = source.path, settings.enabled(source.path)
    found: list[Finding] = []
    values: list[tuple[Kind, object]] = []
    try:
        for kind in KINDS:
            if kind.is_of(source):
                value = kind.read(source, projects)
                if value is not None and kind.tells_launch:
                    outcome.values[path] = value
                if not isinstance(value, (OtherConfig, NoneType)):
                    values.append((kind, kind.alone(value, projects)))
    except InvalidSyntax as error:
        if SECTION not in source.text:
            return False
        if is_template(source.text):
            outcome.accounts.append(Account(path, State.SKIPPED, "a template"))
            return True
        found.append(_invalid(source, error))
    if not values and not found:
        return False
    outcome.sources[path] = source
    outcome.accounts.append(Account(path, State.CHECKED))
    for rule in RULES:
        for kind, value in values if rule.is_of_configs and rule.name in enabled else ():
            judgement = judge_on(rule, kind.name, value, path)
            outcome.failures += judgement.faults
            found += judgement.findings
    chosen = [finding for finding in found if finding.rule in enabled]
    lines = partial(next((kind.lines for kind, _ in values), lines_of_code), source)
    outcome.findings += comments.suppress(source, chosen, enabled, settings.target_torch, lines)
    return True


def _invalid(source: SourceFile, problem: InvalidSyntax) -> Finding:
    from fsdplint.rules.invalid_syntax import RULE

    span = Span(source.path, problem.offset, min(problem.offset + 1, len(source.text)))
    message = f"this file cannot be parsed and is not checked: {problem.message}"
    return Finding(RULE.name, RULE.code, RULE.severity, message, span, "parsing fails here")
