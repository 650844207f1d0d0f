"""The part of a run that is about files of other kinds than Python: files in, findings out.

Each kind has its names of files, a word that all its files have, and a module in `configs/` that
reads them; a rule's module has a function for the kinds that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from fsdplint.files import disk
from fsdplint.files.decoding import Skipped, SourceError
from fsdplint.files.discover import CONFIG_SUFFIXES, is_script, project_root
from fsdplint.files.file import SourceFile, from_bytes, regular, too_large
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.files.lexing import LogicalLine, logical_lines
from fsdplint.finding import Finding, Span
from fsdplint.knowledge.launch_words import WORDS
from fsdplint.outcome import Account, State
from fsdplint.settings.config import Settings

if TYPE_CHECKING:
    from fsdplint.configs.readers import Readers
    from fsdplint.engine.project.launch_settings import LaunchSettings
    from fsdplint.knowledge.accelerate_settings import Settings as Release

_MOST = 1_000_000
"""Bytes of the largest file that is read; config files have a few thousand."""
_HEAD = 50_000
"""Bytes of a larger file that are read to see whether it would be of a kind."""
_SECTION = "fsdp_config"
_OTHER = "no settings of FSDP and no launch line that fsdplint knows"

Releases = Callable[[Path], "tuple[Release, ...]"]


@dataclass(frozen=True, slots=True)
class Projects:
    """What a run knows of the projects that files are in.

    Attributes:
        accelerate: what the releases of accelerate do that a project admits.
        transformers: the same of transformers.
        axolotl: the same of axolotl.
        lightning: the same of Lightning.
        verl: the same of verl.
        readers: who reads a file.
    """

    accelerate: Releases
    transformers: Releases
    axolotl: Releases
    lightning: Releases
    verl: Releases
    readers: Readers


def _lines(source: SourceFile) -> Iterable[LogicalLine]:
    return logical_lines(source.text)


def _unchanged(value: object, _: Projects) -> object:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of files.

    Attributes:
        name: what the functions of rules are called by.
        names: whether a file may be of this kind, by its path.
        words: one of them is in each of its files.
        read: returns what rules judge, None if the file is of another kind.
        judged: the class of that.
        lines: returns the logical lines of a file, which comments are for.
        tells_launch: whether it tells how code of the project is launched.
        alone: returns what rules judge without what other files of the project replace.
    """

    name: str
    names: Callable[[str], bool]
    words: tuple[str, ...]
    read: Callable[[SourceFile, Projects], object | None]
    judged: str
    lines: Callable[[SourceFile], Iterable[LogicalLine]] = _lines
    tells_launch: bool = True
    alone: Callable[[object, Projects], object] = _unchanged

    def is_of(self, source: SourceFile) -> bool:
        """Return whether a file may be of this kind."""
        return self.names(source.path) and any(word in source.text for word in self.words)

    def admits(self, path: str, data: bytes) -> bool:
        """Return whether a file that is no text may be of this kind."""
        return self.names(path) and any(word.encode() in data for word in self.words)


def _read_accelerate(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import accelerate
    from fsdplint.configs.document import parse

    if not accelerate.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    return accelerate.read(source.path, source.text, node, projects.accelerate(Path(source.path)))


def _without_replaced(value: object, projects: Projects) -> object:
    from fsdplint.configs.accelerate import AccelerateConfig
    from fsdplint.configs.launched import without_replaced

    assert isinstance(value, AccelerateConfig)
    return without_replaced(value, projects.readers)


def _read_trainer(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import trainer
    from fsdplint.configs.document import parse

    if not trainer.looks_like(source.path, source.text):
        return None
    node = parse(source.text, source.path)
    releases = projects.transformers(Path(source.path))
    return trainer.read(source.path, source.text, node, releases, projects.readers)


def _read_axolotl(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import axolotl
    from fsdplint.configs.document import parse

    if not axolotl.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    return axolotl.read(source.path, source.text, node, projects.axolotl(Path(source.path)))


def _read_strategy(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import lightning
    from fsdplint.configs.document import parse

    if not lightning.looks_like(source.text):
        return None
    node = parse(source.text, source.path)
    releases = projects.lightning(Path(source.path))
    return lightning.read(source.path, source.text, node, releases, projects.readers)


def _read_launch(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import launch_lines

    releases = projects.accelerate(Path(source.path))
    return launch_lines.read(source.path, source.text, releases, projects.readers)


def _read_verl(source: SourceFile, projects: Projects) -> object | None:
    from fsdplint.configs import verl_lines

    return verl_lines.read(source.path, source.text, projects.verl(Path(source.path)))


def _lines_of_shell(source: SourceFile) -> Iterable[LogicalLine]:
    from fsdplint.configs.launch_lines import shell_of

    return shell_of(source.path, source.text).lines


KINDS = (
    Kind(
        "config",
        lambda path: path.endswith(CONFIG_SUFFIXES),
        (_SECTION, "distributed_type"),
        _read_accelerate,
        "fsdplint.configs.accelerate.AccelerateConfig",
        alone=_without_replaced,
    ),
    Kind(
        "launch",
        is_script,
        WORDS,
        _read_launch,
        "fsdplint.configs.launch_lines.LaunchScript",
        lines=_lines_of_shell,
    ),
    Kind(
        "trainer",
        lambda path: path.endswith(CONFIG_SUFFIXES),
        ("fsdp", "_to_wrap"),
        _read_trainer,
        "fsdplint.configs.trainer.TrainerSettings",
        tells_launch=False,
    ),
    Kind(
        "axolotl",
        lambda path: path.endswith((".yaml", ".yml")),
        ("base_model",),
        _read_axolotl,
        "fsdplint.configs.axolotl.AxolotlSettings",
        tells_launch=False,
    ),
    Kind(
        "strategy",
        lambda path: path.endswith((".yaml", ".yml")),
        ("FSDPStrategy", "ModelParallelStrategy", "fsdp"),
        _read_strategy,
        "fsdplint.configs.lightning.StrategySettings",
        tells_launch=False,
    ),
    Kind(
        "verl",
        is_script,
        ("actor_rollout_ref.",),
        _read_verl,
        "fsdplint.configs.verl_lines.VerlScript",
        lines=_lines_of_shell,
        tells_launch=False,
    ),
)


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
    projects = _projects(overlay, alone=alone)
    for source in _candidates(found, outcome.accounts):
        if source.path not in named:
            _check(overlay.get(source.path, source), settings, projects, outcome)
    for path in sorted(named):
        try:
            source = overlay.get(path) or _named(path)
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


def read_around(found: Iterable[str], outcome: ConfigOutcome) -> None:
    """Add what files of a search hold that are not checked, but may be launched with the code."""
    projects = _projects({})
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
    inside = {p: value for p, value in configs.values.items() if Path(p).is_relative_to(root)}
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


def _named(path: str) -> SourceFile:
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
        if _SECTION not in source.text:
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
    lines = partial(next((kind.lines for kind, _ in values), _lines), source)
    outcome.findings += comments.suppress(source, chosen, enabled, settings.target_torch, lines)
    return True


def _invalid(source: SourceFile, problem: InvalidSyntax) -> Finding:
    from fsdplint.rules.invalid_syntax import RULE

    span = Span(source.path, problem.offset, min(problem.offset + 1, len(source.text)))
    message = f"this file cannot be parsed and is not checked: {problem.message}"
    return Finding(RULE.name, RULE.code, RULE.severity, message, span, "parsing fails here")


def _projects(overlay: Mapping[str, SourceFile], *, alone: bool = False) -> Projects:
    from fsdplint.configs.readers import Readers

    return Projects(
        accelerate=cache(_releases),
        transformers=cache(_releases_of_transformers),
        axolotl=cache(_releases_of_axolotl),
        lightning=cache(_releases_of_lightning),
        verl=cache(_releases_of_verl),
        readers=Readers(overlay, alone=alone),
    )


def _releases(path: Path) -> tuple[Release, ...]:
    """Return what the releases of accelerate do that the project around ``path`` admits.

    Without requirements, and where they admit no release that is known, that is the newest.
    """
    from fsdplint.knowledge.accelerate_settings import settings
    from fsdplint.settings.pins import pinned

    found, every = pinned(project_root(path), "accelerate"), settings()
    if found is None:
        return every[-1:]
    return tuple(s for s in every if found.overlaps(*s.releases)) or every[-1:]


def _releases_of_transformers(path: Path) -> tuple[Release, ...]:
    """Return what the releases of transformers do that the project around ``path`` admits."""
    from fsdplint.knowledge.transformers_settings import admitted
    from fsdplint.settings.pins import pinned

    return admitted(pinned(project_root(path), "transformers"))


def _releases_of_axolotl(path: Path) -> tuple[Release, ...]:
    """Return what the releases of axolotl do that the project around ``path`` admits.

    In a checkout of axolotl itself, that is its own release.
    """
    from fsdplint.configs.axolotl import own_release
    from fsdplint.knowledge.axolotl_settings import PACKAGE, admitted
    from fsdplint.settings.pins import pinned

    root = project_root(path)
    return admitted(own_release(root) or pinned(root, PACKAGE))


def _releases_of_lightning(path: Path) -> tuple[Release, ...]:
    """Return what the releases of Lightning do that the project around ``path`` admits."""
    from fsdplint.knowledge.lightning_settings import admitted
    from fsdplint.settings.pins import pinned

    return admitted(partial(pinned, project_root(path)))


def _releases_of_verl(path: Path) -> tuple[Release, ...]:
    """Return what the releases of verl do that the project around ``path`` admits."""
    from fsdplint.knowledge.verl_settings import admitted
    from fsdplint.settings.pins import pinned

    return admitted(pinned(project_root(path), "verl"))
