"""Show the plan of `check`: --show-files, --show-settings and --verbose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from fsdplint.check_configs import candidates
from fsdplint.cli import CLEAN, FAILED
from fsdplint.cli.plan import Plan
from fsdplint.files.discover import Patterns, discover
from fsdplint.files.file import absolute
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable, shown_path
from fsdplint.report.places import shown
from fsdplint.rules import RULES
from fsdplint.settings.config import Group, Settings


def show_files(plan: Plan) -> int:
    """Print the files to check, and return the exit code."""
    files: set[str] = set(plan.piped)
    code = CLEAN
    for group in plan.groups:
        paths = [Path(path) for path in group.paths if absolute(path) not in plan.piped]
        found = discover(paths, group.settings.exclude)
        files.update(map(absolute, found.files))
        files.update(candidates(found.configs))
        for failure in found.failures:
            code = FAILED
            click.echo(f"fsdplint: {shown_path(failure.path)}: {failure.reason}", err=True)
    for file in sorted(files):
        click.echo(shown_path(file))
    return code


def show_settings(plan: Plan) -> int:
    """Print the settings of each group of paths as TOML, and return the exit code."""
    click.echo("\n".join("".join(_settings(group)) for group in plan.groups), nl=False)
    return CLEAN


def verbose_lines(plan: Plan, outcome: Outcome) -> Iterator[str]:
    """Yield a line for each settings file, and for what happened to each file."""
    for group in plan.groups:
        yield f"settings for {_paths(group)}: {_file(group)}"
        settings = group.settings
        releases = releases_text(settings.target_torch) or "every release"
        source = settings.target_torch.source
        yield f"PyTorch: {releases}{f' ({source})' if source else ''}"
        yield f"rules: {len(settings.select)} of {len(RULES)}"
    for account in outcome.accounts:
        reason = f": {printable(account.reason)}" if account.reason else ""
        yield f"{shown(outcome, account.path)}: {account.state.value}{reason}"


def releases_text(releases: TorchRange) -> str:
    """Return ``releases`` as `target-torch` has them, "" for every release."""
    lower, upper = EVERY_RELEASE.lower, EVERY_RELEASE.upper
    clauses = []
    if releases.lower != lower:
        clauses.append(f">={_release(releases.lower)}")
    if releases.upper != upper:
        clauses.append(f"<{_release(releases.upper)}")
    return ",".join(clauses)


def _release(release: tuple[int, int, int]) -> str:
    major, minor, patch = release
    return f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"


def _paths(group: Group) -> str:
    first, *others = (group.paths + group.excluded) or (".",)
    more = f" and {len(others)} more" if others else ""
    return f"{shown_path(first)}{more}"


def _file(group: Group) -> str:
    return printable(absolute(group.file)) if group.file else "none found, so the defaults"


def _settings(group: Group) -> Iterator[str]:
    settings = group.settings
    yield f"# Settings for {_paths(group)}\n# File: {_file(group)}\n"
    names = [rule.name for rule in RULES if rule.name in settings.select]
    yield f"select = {_list((name, '') for name in names)}\n"
    yield f"exclude = {_list(_patterns(settings.exclude))}\n"
    if releases := releases_text(settings.target_torch):
        source = settings.target_torch.source
        yield f"target-torch = {_string(releases)}{f'  # {source}' if source else ''}\n"
    yield f"output-format = {_string(settings.output_format)}\n"
    if settings.baseline is not None:
        yield f"baseline = {_string(settings.baseline)}\n"
    for key, value in (
        ("preview", settings.opt_in.preview),
        ("pedantic", settings.opt_in.pedantic),
        ("strict", settings.strict),
    ):
        yield f"{key} = {str(value).lower()}\n"
    yield f"fail-on = {_string(settings.fail_on.value)}\n"
    yield from _per_file(settings)


def _per_file(settings: Settings) -> Iterator[str]:
    # At the end, since a table takes all keys that follow.
    if settings.per_file_ignores:
        yield "\n[per-file-ignores]\n"
    for patterns, names in settings.per_file_ignores:
        for line in patterns.lines:
            yield f"{_string(line)} = [{', '.join(map(_string, sorted(names)))}]\n"


def _patterns(exclude: Iterable[Patterns]) -> Iterator[tuple[str, str]]:
    return ((line, f"in {printable(p.base)}") for p in exclude for line in p.lines)


def _list(items: Iterable[tuple[str, str]]) -> str:
    """Return an array of strings, each with a comment."""
    lines = [f"  {_string(text)},{f'  # {note}' if note else ''}\n" for text, note in items]
    return "".join(["[\n", *lines, "]"]) if lines else "[]"


def _string(text: str) -> str:
    """Return ``text`` in quotes; nothing in it controls a terminal, or a runner that logs it."""
    safe = (c if c.isprintable() and c not in '"#\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(safe)}"'
