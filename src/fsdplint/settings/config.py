"""Settings of a project: `[tool.fsdplint]` in pyproject.toml, or a fsdplint.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import Patterns
from fsdplint.files.file import absolute, regular
from fsdplint.files.pins import pinned
from fsdplint.finding import Severity
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange
from fsdplint.report import REPORTS
from fsdplint.settings.keys import KEYS
from fsdplint.settings.rule_selection import ALWAYS_SELECTED, EVERYTHING, OptIn, resolve
from fsdplint.suggest import suggest

SEVERITIES = tuple(severity.value for severity in Severity)
_MAX_SIZE = 1_000_000  # bytes, a hundred times what a large pyproject.toml has
# A key of many parts, which takes the parser a time that grows with their square.
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP = re.compile(rf"(?<![\w-])(?:{_PART}[ \t]*\.[ \t]*){{50}}")


_NOTHING = OptIn()


def _by_default(opt_in: OptIn = _NOTHING) -> frozenset[str]:
    return resolve(["ALL"], opt_in)


class ConfigError(Exception):
    """Settings that cannot be used; the message is one line that names the file and the key."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    Attributes:
        select: names of the rules to run; by default all that need no opt-in.
        per_file_ignores: patterns of files, each with the names of rules not to run on them.
        exclude: patterns of files not to look at unless they are given themselves.
        target_torch: the PyTorch releases that the code runs on: by default those that the
            project's requirements admit, or else every one.
        baseline: the absolute path of the baseline to report against, or None.
        opt_in: which rules ALL and prefixes select besides the usual ones.
        strict: whether a run fails if the analysis of a program stopped early.
        fail_on: the least severity of findings that a run fails on.
    """

    select: frozenset[str] = field(default_factory=_by_default)
    per_file_ignores: tuple[tuple[Patterns, frozenset[str]], ...] = ()
    exclude: tuple[Patterns, ...] = ()
    target_torch: TorchRange = field(default=TorchRange())
    output_format: str = "full"
    baseline: str | None = None
    opt_in: OptIn = _NOTHING
    strict: bool = False
    fail_on: Severity = Severity.WARNING

    def enabled(self, path: str) -> frozenset[str]:
        """Return the names of the rules to run on the file at ``path``."""
        ignored = [
            names for patterns, names in self.per_file_ignores if patterns.decide(path, False)
        ]
        return self.select.difference(*ignored)


@dataclass(frozen=True, slots=True)
class Group:
    """Paths that are checked together, since the same settings count for them.

    Attributes:
        file: the settings file, None without one.
        excluded: those that are not, though they were given.
    """

    paths: tuple[str, ...]
    settings: Settings
    file: Path | None = None
    excluded: tuple[str, ...] = ()


def find_config(start: Path) -> Path | None:
    """Return the nearest settings file in ``start`` or above it, within its git repository.

    Folders above a repository are ignored: anybody may have put settings into a shared folder. A
    pyproject.toml without a `[tool.fsdplint]` table is ignored, too.

    Raises:
        ConfigError: a pyproject.toml on the way cannot be read.
    """
    return _nearest(Path(absolute(start)), {})


def _nearest(directory: Path, known: dict[Path, Path | None]) -> Path | None:
    """Return the settings file for ``directory``; ``known`` holds the results so far."""
    if directory not in known:
        last = directory == directory.parent or disk.exists(directory / ".git")
        known[directory] = _settings_in(directory) or (
            None if last else _nearest(directory.parent, known)
        )
    return known[directory]


def _settings_in(directory: Path) -> Path | None:
    own, shared = directory / "fsdplint.toml", directory / "pyproject.toml"
    if disk.is_file(own):
        return own
    return shared if disk.is_file(shared) and _table(shared) is not None else None


def defaults(opt_in: OptIn = _NOTHING) -> Settings:
    """Return the settings for a run without a settings file."""
    return Settings(select=_by_default(opt_in), opt_in=opt_in)


def load_settings(file: Path, opt_in: OptIn = _NOTHING) -> Settings:
    """Return the settings in ``file``.

    Args:
        opt_in: rules that are on, even if the file does not say so.

    Raises:
        ConfigError: it cannot be read, or a key or a value is invalid.
    """
    return _Reader(file, _table(file) or {}).settings(opt_in)


def settings_for(
    paths: Sequence[str],
    config: str | None,
    isolated: bool,
    opt_in: OptIn = _NOTHING,
) -> Settings:
    """Return the settings for ``paths``: from ``config``, or from the file found above them all.

    Args:
        isolated: whether no file is read.
        opt_in: rules that are on, even if no file says so.

    Raises:
        ConfigError: a file cannot be used, or is given although none is to be read.
    """
    if isolated and config is not None:
        raise ConfigError("--isolated cannot be combined with --config")
    if isolated:
        return defaults(opt_in)
    if config is not None:
        return load_settings(Path(config), opt_in)
    common = Path(os.path.commonpath(map(_directory, paths)))
    found = find_config(common)
    return _with_pins(load_settings(found, opt_in) if found else defaults(opt_in), common)


def _with_pins(settings: Settings, directory: Path) -> Settings:
    """Take the PyTorch releases from the project's requirements if the settings name none."""
    found = pinned(directory, "torch") if settings.target_torch == EVERY_RELEASE else None
    return settings if found is None else replace(settings, target_torch=found)


def groups_for(
    paths: Sequence[str],
    config: str | None,
    isolated: bool,
    opt_in: OptIn = _NOTHING,
) -> tuple[Group, ...]:
    """Return ``paths`` grouped by their settings: from ``config``, or found above each path.

    The findings in a file then do not depend on the other given files.

    Raises:
        ConfigError: as `settings_for`.
    """
    if isolated or config is not None:
        settings = settings_for(paths, config, isolated, opt_in)
        return (Group(tuple(paths), settings, None if config is None else Path(config)),)
    known: dict[Path, Path | None] = {}
    found: dict[Path | None, list[str]] = {}
    for path in paths:
        found.setdefault(_nearest(Path(_directory(path)), known), []).append(path)
    return tuple(
        Group(
            tuple(together),
            _with_pins(
                load_settings(file, opt_in) if file else defaults(opt_in),
                Path(os.path.commonpath(map(_directory, together))),
            ),
            file,
        )
        for file, together in found.items()
    )


def _directory(path: str) -> str:
    return absolute(path if disk.is_folder(path) else Path(path).parent)


def select_rules(
    settings: Settings,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    extend_select: Sequence[str] = (),
) -> Settings:
    """Return ``settings`` with the command line's selection; ``select`` replaces the file's.

    Raises:
        UnknownRuleError: a selector selects no rule.
        ConfigError: none of the rules that are selected is left.
    """
    opt_in = settings.opt_in
    named = resolve(select, opt_in) | resolve(extend_select, opt_in)
    if not select:
        named |= (settings.select - ALWAYS_SELECTED) or settings.select
    ignored = resolve(ignore)
    if not named - ignored:
        raise ConfigError("no rule is left: --ignore disables all selected rules")
    always = ALWAYS_SELECTED if select else settings.select
    return replace(settings, select=(named | always) - ignored)


def _table(file: Path) -> Mapping[str, object] | None:
    """Return our table in ``file``, None if it is a pyproject.toml without one.

    Any other file may be ours as a whole.
    """
    from fsdplint.toml import loads

    try:
        text = regular(file, _MAX_SIZE).decode()
        if _DEEP.search(text):
            raise ConfigError(f"{file}: too deeply nested")
        document = loads(text)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except SourceError as error:
        raise ConfigError(f"{file}: {error.reason}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: too deeply nested") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not valid TOML: {_one_line(error)}") from error
    tool = document.get("tool", {})
    table = tool.get("fsdplint") if isinstance(tool, dict) else None
    if table is None and file.name != "pyproject.toml":
        return document
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{file}: tool.fsdplint: expected a table")
    return table


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Reader:
    """Turn a table into settings; errors name the file and the key."""

    def __init__(self, file: Path, table: Mapping[str, object]) -> None:
        self.file = file
        self.table = {**{name: key.default for name, key in KEYS.items()}, **table}
        self.base = os.fspath(Path(absolute(file)).parent)

    def settings(self, opt_in: OptIn) -> Settings:
        """Return the settings; ``opt_in`` turns rules on even if the table does not.

        Raises:
            ConfigError: a key is unknown, or its value is not what it takes.
        """
        for key in self.table:
            if key not in KEYS:
                raise self.error(key, f"unknown key{suggest(key, KEYS)}")
        opt_in |= OptIn(self.boolean("preview"), self.boolean("pedantic"))
        return Settings(
            select=self.selected(opt_in),
            per_file_ignores=self.per_file_ignores("per-file-ignores"),
            exclude=self.exclude("exclude"),
            target_torch=self.torch_range("target-torch"),
            output_format=self.output_format("output-format"),
            baseline=self.baseline("baseline"),
            opt_in=opt_in,
            strict=self.boolean("strict"),
            fail_on=self.severity("fail-on"),
        )

    def selected(self, opt_in: OptIn) -> frozenset[str]:
        names = self.names("select", opt_in) | self.names("extend-select", opt_in)
        ignored = self.names("ignore")
        if not names:
            raise self.error("select", "selects no rule")
        if not names - ignored:
            raise self.error("ignore", "disables all selected rules")
        return (names | ALWAYS_SELECTED) - ignored

    def names(self, key: str, opt_in: OptIn = EVERYTHING) -> frozenset[str]:
        return self.resolve(key, self.table[key], opt_in)

    def resolve(self, key: str, value: object, opt_in: OptIn = EVERYTHING) -> frozenset[str]:
        with self.naming(key):
            return resolve(self.strings(key, value), opt_in)

    def boolean(self, key: str) -> bool:
        value = self.table[key]
        if not isinstance(value, bool):
            raise self.error(key, "expected true or false")
        return value

    def strings(self, key: str, value: object) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "expected a list of strings")
        return value

    def per_file_ignores(self, key: str) -> tuple[tuple[Patterns, frozenset[str]], ...]:
        value = self.table[key]
        if not isinstance(value, dict):
            raise self.error(key, "expected a table of patterns, each with a list of rules")
        return tuple(
            (self.patterns(key, [pattern]), self.resolve(f"{key}.{pattern!r}", names))
            for pattern, names in value.items()
        )

    def exclude(self, key: str) -> tuple[Patterns, ...]:
        lines = self.strings(key, self.table[key])
        return (self.patterns(key, lines),) if lines else ()

    def patterns(self, key: str, lines: list[str]) -> Patterns:
        with self.naming(key):
            return Patterns.of(self.base, lines)

    def torch_range(self, key: str) -> TorchRange:
        value = self.table[key]
        if value is None:
            return TorchRange()
        if not isinstance(value, str):
            raise self.error(key, 'expected a string such as ">=2.6,<2.14"')
        with self.naming(key):
            return TorchRange.parse(value)

    def output_format(self, key: str) -> str:
        value = self.table[key]
        if not isinstance(value, str) or value not in REPORTS:
            hint = suggest(str(value), REPORTS)
            raise self.error(key, f"expected one of {', '.join(REPORTS)}{hint}")
        return value

    def severity(self, key: str) -> Severity:
        value = self.table[key]
        if value not in SEVERITIES:
            hint = suggest(str(value), SEVERITIES)
            raise self.error(key, f"expected one of {', '.join(SEVERITIES)}{hint}")
        return Severity(value)

    def baseline(self, key: str) -> str | None:
        value = self.table[key]
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.error(key, "expected a file name, relative to the settings file")
        return os.path.normpath(Path(self.base) / value)

    @contextmanager
    def naming(self, key: str) -> Iterator[None]:
        """Name the file and the key in an error that says what is wrong with the value."""
        try:
            yield
        except ValueError as error:
            raise self.error(key, _one_line(error)) from error

    def error(self, key: str, message: str) -> ConfigError:
        return ConfigError(f"{self.file}: {key}: {message}")
