"""`fsdplint explain` and `fsdplint rules`: the rules, and the errors that they explain."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from fsdplint.check import check
from fsdplint.cli import CLEAN, FAILED, FINDINGS
from fsdplint.cli.completion import complete_rule_or_path
from fsdplint.files.file import absolute, too_large
from fsdplint.outcome import Outcome
from fsdplint.pages import page
from fsdplint.process.terminal import color_option, columns, progress, show, wants_colour
from fsdplint.report.places import failure_line
from fsdplint.report.style import Style
from fsdplint.rule import Rule
from fsdplint.rules import RULES
from fsdplint.settings.config import settings_for
from fsdplint.settings.rule_selection import EVERYTHING, find
from fsdplint.urls import rule_url

if TYPE_CHECKING:
    from fsdplint.pages.diagnosis import Cause, Frame, Match
    from fsdplint.pages.flight_recorder import Divergence

_STDIN = "-"
_MAX_LOG = 20_000_000  # bytes


class Diagnosis(NamedTuple):
    """What an error belongs to.

    Attributes:
        outcome: what the rules find in the given files.
        lines: lines of the given files that the error names.
    """

    matches: list[Match]
    causes: list[Cause]
    outcome: Outcome
    lines: list[Frame]
    hang: list[Divergence] | None


@click.command()
@click.argument(
    "words", nargs=-1, metavar="RULE | [PATHS]...", shell_complete=complete_rule_or_path
)
@click.option(
    "--error",
    type=click.Path(),
    metavar="FILE",
    help="Explain this log (- for standard input), flight recorder dump, or folder of dumps.",
)
@click.option(
    "--output-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)
@color_option
def explain(words: tuple[str, ...], error: str | None, output_format: str) -> int:
    """Print the page of RULE (name or code).

    With --error, name the rules and causes behind a traceback, a log, or a hang, and show what
    these rules find in PATHS. If they find nothing there, show the lines in PATHS that the error
    names. For flight recorder dumps, also show where the ranks diverge. Exit with 1 if the error
    is unknown.
    """
    if error is not None:
        return _diagnosed(error, words, output_format)
    if len(words) != 1:
        raise click.UsageError("explain requires one RULE, or --error FILE")
    if output_format == "json":
        click.echo(json.dumps(rule_as_json(words[0]), indent=2))
    else:
        click.echo(page(find(words[0])))
    return CLEAN


def _diagnosed(error: str, paths: tuple[str, ...], output_format: str) -> int:
    """Print the rules that ``error`` belongs to and what they find in ``paths``; the exit code."""
    from fsdplint.report.diagnosis import diagnosis_as_json, diagnosis_as_text, hang_as_text

    hang = _hang(error)
    log = "" if hang is not None else _log(error).decode("utf-8", "replace")
    matches, causes, outcome, lines, _ = diagnosis(log, paths, hang)
    for failure in outcome.failures:
        click.echo(f"fsdplint: {failure_line(outcome, failure)}", err=True)
    if output_format == "json":
        show(diagnosis_as_json(matches, causes, outcome, lines, hang))
    else:
        color = wants_colour(sys.stdout)
        style = Style(color)
        width = columns(sys.stdout)
        told = [] if hang is None else [hang_as_text(hang, width)]
        if hang is None or matches:
            told.append(diagnosis_as_text(matches, causes, outcome, lines, style, width))
        show("\n".join(told), color)
    return FAILED if outcome.failures else CLEAN if matches or causes else FINDINGS


def diagnosis(log: str, paths: tuple[str, ...], hang: list[Divergence] | None = None) -> Diagnosis:
    """Return the rules and causes that ``log``, or ``hang`` instead of it, belongs to.

    Args:
        paths: files and folders in which to look for these rules.
    """
    from fsdplint.pages.diagnosis import diagnose, frames, hung, known_errors

    if hang is None:
        matches, causes = diagnose(log, RULES), known_errors(log)
        if matches and causes and causes[0].error.last:
            causes = []
    else:
        log, matches = hung(hang, RULES)
        causes = []
    outcome = _suspects([match.rule for match in matches], paths)
    found = {finding.rule for finding in outcome.findings}
    matches.sort(key=lambda match: match.rule.name not in found)
    lines = frames(log, [Path(absolute(path)) for path in paths])
    return Diagnosis(matches, causes, outcome, lines, hang)


def _hang(file: str) -> list[Divergence] | None:
    """Return where the ranks diverge, None if ``file`` is no flight recorder dump."""
    from fsdplint.pages.flight_recorder import NoDumpError, divergences, is_dump, read_dumps

    path = Path(file)
    if file == _STDIN or (not path.is_dir() and not (path.is_file() and is_dump(_start(path)))):
        return None
    try:
        return divergences(read_dumps(path))
    except NoDumpError as error:
        raise click.ClickException(str(error)) from error


def _start(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(2)


def _log(file: str) -> bytes:
    """Return what is in ``file``, which may be a pipe."""
    with nullcontext(sys.stdin.buffer) if file == _STDIN else Path(file).open("rb") as stream:
        data = stream.read(_MAX_LOG + 1)
    if len(data) > _MAX_LOG:
        raise click.ClickException(f"{file}: {too_large(_MAX_LOG)}; pass only its end")
    return data


def _suspects(suspected: Sequence[Rule], paths: tuple[str, ...]) -> Outcome:
    """Return what the suspected rules, and no others, find in ``paths``; without paths, nothing."""
    if not paths:
        return Outcome((), {}, base=Path.cwd().as_posix())
    settings = settings_for(paths, None, False, EVERYTHING)
    names = frozenset(rule.name for rule in suspected)
    with progress("fsdplint: checking…"):
        return check(paths, replace(settings, select=names, per_file_ignores=()))


@click.command()
@click.option(
    "--output-format",
    "--format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)
def rules(output_format: str) -> None:
    """List all rules."""
    if output_format == "json":
        click.echo(json.dumps([_rule(rule) for rule in RULES], indent=2))
        return
    width = max(len(rule.name) for rule in RULES)
    for rule in RULES:
        click.echo(
            f"{rule.code}  {rule.name:<{width}}  {rule.severity.value:<7}  {rule.applicability:<18}"
            f"  {rule.summary}{' (preview)' if rule.preview else ''}"
        )


def rule_as_json(selector: str) -> dict[str, str | None]:
    """Return the rule with the name or code ``selector``, and its page.

    Raises:
        UnknownRuleError: there is no such rule.
    """
    name = find(selector)
    rule = next(rule for rule in RULES if rule.name == name)
    return {**_rule(rule), "page": page(name)}


def _rule(rule: Rule) -> dict[str, str | None]:
    return {
        "name": rule.name,
        "code": rule.code,
        "summary": rule.summary,
        "severity": rule.severity.value,
        "fix": rule.fix.value if rule.fix else None,
        "since": rule.since,
        "clause": rule.clause,
        "preview": rule.preview or None,
        "url": rule_url(rule.name),
    }
