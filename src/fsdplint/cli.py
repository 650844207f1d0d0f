"""The command line. Only it, its `verify` and its `baseline` print, a sign of life apart."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from fsdplint import __version__
from fsdplint.account import Account, State, united
from fsdplint.baseline import Baseline, BaselineError, Scope, load, without
from fsdplint.baseline.command import baseline as baseline_command
from fsdplint.baseline.command import tell_gone
from fsdplint.check import check as run
from fsdplint.check import inspect as understand
from fsdplint.config import (
    OUTPUT_FORMATS,
    ConfigError,
    Group,
    Settings,
    groups_for,
    select_rules,
    settings_for,
)
from fsdplint.discover import searched
from fsdplint.index import index
from fsdplint.outcome import Changes, Outcome, Recheck, merged
from fsdplint.outputs import Output, OutputError, outputs
from fsdplint.pages import page
from fsdplint.progress import progress
from fsdplint.registry import every_rule
from fsdplint.report import STATISTICS, render
from fsdplint.report.diff import diff as diff_report
from fsdplint.report.places import located, shown, told
from fsdplint.report.style import coloured, plain
from fsdplint.report.summary import unfollowed
from fsdplint.rule import Rule
from fsdplint.selection import UnknownRuleError, find
from fsdplint.source import SourceError, SourceFile, from_bytes
from fsdplint.source.file import absolute
from fsdplint.terminal import columns, deliver, printable, show, wants_colour
from fsdplint.verify.command import verify

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
_STDIN = "-"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="fsdplint", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return _fail(error.format_message())
    except SourceError as error:
        return _fail(f"{error.path.removeprefix(f'{Path.cwd().as_posix()}/')}: {error.reason}")
    except (BaselineError, ConfigError, OutputError, UnknownRuleError) as error:
        return _fail(str(error))
    except Exception as error:  # whatever it is, the user gets one line and a 2
        if os.environ.get("FSDPLINT_DEBUG"):
            raise
        return _fail(_refused(error) if isinstance(error, OSError) else _internal(error))
    return code if isinstance(code, int) else CLEAN


def _fail(message: str) -> int:
    click.echo(f"fsdplint: {printable(' '.join(message.split()))}", err=True)
    return FAILED


def _refused(error: OSError) -> str:
    """What the system does not do, e.g. print to a full disk."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _internal(error: Exception) -> str:
    what = f"{type(error).__name__}: {error}"
    return f"internal error, please report it: {what} (FSDPLINT_DEBUG=1 shows where)"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="fsdplint %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find, explain and fix broken PyTorch FSDP training contracts.

    Exit codes: 0 nothing found, 1 findings, 2 something could not be done.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.add_command(verify)
cli.add_command(baseline_command)


def _selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose rules; each takes names, codes and prefixes, with commas."""
    for name, help_ in (
        ("--extend-select", "Run these too."),
        ("--ignore", "Do not run these."),
        ("--select", "Run these rules only: names, codes, prefixes such as FSD3, or ALL."),
    ):
        command = click.option(name, multiple=True, metavar="RULE,…", help=help_)(command)
    return command


@cli.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--fix", is_flag=True, help="Write safe fixes.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: unsafe fixes too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and write nothing.")
@click.option(
    "--add-ignore",
    metavar="REASON",
    help="Write a comment with this reason behind each statement that has findings.",
)
@click.option(
    "--verify",
    "proving",
    is_flag=True,
    help="With --fix: run the script that is the first path, unfixed and fixed, on several ranks, "
    "and write only what that proves. Executes it.",
)
@click.option("--nproc", type=click.IntRange(1), default=2, help="Ranks of --verify. [2]")
@click.option("--verify-args", default="", metavar="ARGS", help="The script's own, as one string.")
@_selection
@click.option("--preview", is_flag=True, help="Let ALL and prefixes mean preview rules too.")
@click.option(
    "--output-format",
    "formats",
    multiple=True,
    metavar="NAME[=FILE]",
    help=f"{', '.join(OUTPUT_FORMATS)}; with the file to write, or to be printed. Can be repeated.",
)
@click.option("--output-file", type=click.Path(), help="Write the report there.")
@click.option("--statistics", is_flag=True, help="Count findings by rule.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings.")
@click.option("--baseline", type=click.Path(), help="Report only what is not in this baseline.")
@click.option("--no-baseline", is_flag=True, help="Report what is in the settings' baseline too.")
@click.option("--force-exclude", is_flag=True, help="Leave out excluded paths, though given.")
@click.option("--stdin-filename", type=click.Path(), help="What standard input is called.")
@click.option("--config", type=click.Path(), help="Settings to use, found by themselves if not.")
@click.option("--isolated", is_flag=True, help="Use no settings file.")
def check(
    paths: tuple[str, ...],
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    add_ignore: str | None,
    proving: bool,
    nproc: int,
    verify_args: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    preview: bool,
    formats: tuple[str, ...],
    output_file: str | None,
    statistics: bool,
    exit_zero: bool,
    baseline: str | None,
    no_baseline: bool,
    force_exclude: bool,
    stdin_filename: str | None,
    config: str | None,
    isolated: bool,
) -> int:
    """Check files and folders, `-` for standard input; the current folder by default.

    Folders are searched for .py, .pyi and .ipynb files that git does not ignore.
    """
    if unsafe_fixes and not (fix or diff):
        raise click.UsageError("--unsafe-fixes needs --fix or --diff")
    if add_ignore is not None and (fix or not add_ignore.isprintable() or not add_ignore.strip()):
        raise click.UsageError("--add-ignore needs a reason on one line, and excludes --fix")
    if proving and not (fix and paths and Path(paths[0]).is_file()):
        raise click.UsageError("--verify needs --fix and a script as the first path")
    if baseline and no_baseline:
        raise click.UsageError("--baseline and --no-baseline exclude each other")
    paths, piped = _inputs(paths, stdin_filename)
    chosen = tuple(map(_split, (select, ignore, extend_select)))
    groups = [
        _narrowed(group, chosen, force_exclude)
        for group in groups_for(paths, config, isolated, every_rule(), preview)
    ]
    shared = settings_for(paths, config, isolated, every_rule(), preview)
    reports = outputs(formats, output_file, shared.output_format)
    if statistics and (other := {report.format_ for report in reports} - STATISTICS.keys()):
        raise click.UsageError(f"--statistics has no {min(other)}; {', '.join(STATISTICS)} it has")
    olds = [_baseline(group.settings, baseline, no_baseline) for group in groups]

    def outcomes(overlay: Mapping[str, SourceFile]) -> list[Outcome]:
        whole = {**piped, **overlay}
        return [_excluding(run(group.paths, group.settings, whole), group) for group in groups]

    def new(wholes: Sequence[Outcome]) -> Outcome:
        return merged([_new(whole, old) for whole, old in zip(wholes, olds, strict=True)])

    with progress("fsdplint: checking…"):
        wholes = outcomes({})
        outcome = new(wholes)
        changes = (
            _changes(outcome, lambda overlay: new(outcomes(overlay)), unsafe_fixes, add_ignore)
            if fix or diff or add_ignore
            else None
        )
    if changes and changes.files and proving and not _proved(changes, paths[0], nproc, verify_args):
        changes = None
    if changes:
        reported = {report.format_ for report in reports if report.file is None}
        did = _fixing(changes) if add_ignore is None else _silencing(outcome, changes)
        outcome = _apply(changes, piped, did, write=not diff)
        if add_ignore is None and "full" not in reported:
            _tell_unfixed(outcome)
    stale = [
        tell_gone(whole, old, Scope(group.paths, group.settings))
        for group, whole, old in zip(groups, wholes, olds, strict=True)
        if old
    ]
    _report(outcome, reports, statistics, aside=diff or bool(changes and piped))
    found = outcome.findings or any(stale) or (diff and changes and changes.files)
    return FAILED if outcome.failures else FINDINGS if found and not exit_zero else CLEAN


def _inputs(
    paths: tuple[str, ...], stdin_filename: str | None
) -> tuple[tuple[str, ...], dict[str, SourceFile]]:
    """The paths to check, and standard input as the file it is called."""
    if _STDIN not in paths:
        if stdin_filename is not None:
            raise click.UsageError("--stdin-filename needs the path -")
        return paths or (".",), {}
    if len(paths) > 1:
        raise click.UsageError("- is read alone, without other paths")
    source = from_bytes(sys.stdin.buffer.read(), stdin_filename or "<stdin>")
    return (source.path,), {source.path: source}


def _split(selectors: tuple[str, ...]) -> list[str]:
    return [word.strip() for selector in selectors for word in selector.split(",")]


def _narrowed(group: Group, chosen: Sequence[Sequence[str]], force_exclude: bool) -> Group:
    """``group`` with the rules that the command line selects and without excluded paths."""
    paths = searched(group.paths, group.settings.exclude) if force_exclude else group.paths
    excluded = tuple(path for path in group.paths if path not in paths)
    return Group(paths, select_rules(group.settings, every_rule(), *chosen), excluded)


def _excluding(outcome: Outcome, group: Group) -> Outcome:
    """``outcome`` with an account of what was given and left out."""
    left = [Account(absolute(path), State.SKIPPED, "is excluded") for path in group.excluded]
    return replace(outcome, accounts=united([*outcome.accounts, *left]))


def _baseline(settings: Settings, given: str | None, none: bool) -> Baseline | None:
    known = None if none else given or settings.baseline
    return load(known) if known else None


def _new(outcome: Outcome, old: Baseline | None) -> Outcome:
    return without(outcome, old) if old else outcome


def _changes(outcome: Outcome, recheck: Recheck, unsafe: bool, ignored: str | None) -> Changes:
    from fsdplint.fixing import fixed

    if ignored is None:
        return fixed(outcome, recheck, unsafe)
    from fsdplint.ignoring import with_comments

    return fixed(outcome, recheck, False, lambda found: with_comments(found, ignored.strip()))


def _proved(changes: Changes, script: str, ranks: int, arguments: str) -> bool:
    from fsdplint.verify.gate import proved

    return proved(changes, script, ranks, arguments)


def _fixing(changes: Changes) -> tuple[str, int]:
    return "fix", len(changes.fixed)


def _silencing(before: Outcome, changes: Changes) -> tuple[str, int]:
    return "silence", len(before.findings) - len(changes.outcome.findings)


def _apply(
    changes: Changes, piped: Mapping[str, SourceFile], did: tuple[str, int], write: bool
) -> Outcome:
    """Show or write the changes; the outcome that is left, with what could not be written.

    Args:
        did: what they do to findings, and to how many.
    """
    for path, note in changes.notes:
        click.echo(f"fsdplint: {shown(changes.outcome, path)}: {printable(note)}", err=True)
    failures: list[SourceError] = []
    if not write:
        color = wants_colour(sys.stdout)
        exact = sys.stdout is None or not sys.stdout.isatty()
        # In colour even without: it would be stripped off the user's own strings.
        show(diff_report(changes, coloured if color else plain, exact), color=True)
    elif piped:
        _print_source(piped, changes)
    else:
        failures = _write(changes)
    verb, count = did
    if changes.fixed:
        findings = f"{count} finding{'s'[: count != 1]}"
        done = f"{verb}{'d' if verb.endswith('e') else 'ed'}".capitalize()
        # What follows is a report on files that nobody has yet.
        click.echo(f"{done} {findings}." if write else f"Would {verb} {findings}; then:", err=True)
    return replace(changes.outcome, failures=(*changes.outcome.failures, *failures))


def _tell_unfixed(outcome: Outcome) -> None:
    """Why findings have no fix, which most formats leave out."""
    for finding in outcome.findings:
        if finding.fix is None:
            where = located(outcome, finding.span)
            reason = finding.fix_declined or "it has no fix"
            click.echo(
                f"fsdplint: {where}: {finding.rule} is not fixed: {printable(reason)}", err=True
            )


def _write(changes: Changes) -> list[SourceError]:
    from fsdplint.source.writing import write

    failures = []
    for before, after in changes.files:
        try:
            write(before, after)
        except SourceError as error:
            failures.append(error)
    return failures


def _print_source(piped: Mapping[str, SourceFile], changes: Changes) -> None:
    after = {old.path: new for old, new in changes.files}
    stdout = sys.stdout.buffer
    for path, source in piped.items():
        stdout.write(after.get(path, source).encode())
    stdout.flush()


def _report(outcome: Outcome, reports: Sequence[Output], counts: bool, aside: bool) -> None:
    """Write reports and print reports, on standard error if standard output is another's."""
    for failure in outcome.failures:
        click.echo(f"fsdplint: {told(outcome, failure)}", err=True)
    if partly := unfollowed(outcome):
        click.echo(f"fsdplint: {partly}", err=True)
    # Files first: who reads standard output may close it.
    for report in sorted(reports, key=lambda report: report.file is None):
        color = report.file is None and wants_colour(sys.stderr if aside else sys.stdout)
        text = render(outcome, report.format_, color=color, counts=counts)
        deliver(text, report.file, color, aside)


@cli.command()
@click.argument("words", nargs=-1, metavar="RULE | [PATHS]...")
@click.option("--error", metavar="FILE", help="An error, - for standard input: whose rule is it?")
@click.option("--output-format", type=click.Choice(("text", "json")), default="text")
def explain(words: tuple[str, ...], error: str | None, output_format: str) -> int:
    """Print the page of RULE, a name or a code.

    With --error, name the rules that a traceback, a log or a report of a hang belongs to, and what
    they find in PATHS, or else the lines of these that the error names. Exits with 1 if no rule
    knows the error.
    """
    if error is not None:
        return _diagnosed(error, words, output_format)
    if len(words) != 1:
        raise click.UsageError("explain takes one rule, or --error")
    rule = next(rule for rule in every_rule() if rule.name == find(words[0], every_rule()))
    text = page(rule.name)
    if output_format == "json":
        text = json.dumps({**_rule(rule), "page": text}, indent=2)
    click.echo(text)
    return CLEAN


def _diagnosed(error: str, paths: tuple[str, ...], output_format: str) -> int:
    from fsdplint.diagnosis import diagnose, frames
    from fsdplint.report.diagnosis import diagnosis_as_json, diagnosis_as_text

    stored = sys.stdin.buffer.read() if error == _STDIN else Path(error).read_bytes()
    text = stored.decode("utf-8", "replace")
    matches = diagnose(text, every_rule())
    outcome = _suspects([match.rule for match in matches], paths)
    found = {finding.rule for finding in outcome.findings}
    matches.sort(key=lambda match: match.rule.name not in found)
    lines = frames(text, [Path(absolute(path)) for path in paths])
    for failure in outcome.failures:
        click.echo(f"fsdplint: {told(outcome, failure)}", err=True)
    if output_format == "json":
        show(diagnosis_as_json(matches, outcome, lines))
    else:
        color = wants_colour(sys.stdout)
        style = coloured if color else plain
        width = columns(sys.stdout)
        show(diagnosis_as_text(matches, outcome, lines, style, width), color)
    return FAILED if outcome.failures else CLEAN if matches else FINDINGS


def _suspects(suspected: Sequence[Rule], paths: tuple[str, ...]) -> Outcome:
    """What the suspected rules, and no others, find in ``paths``; without paths, nothing."""
    if not paths:
        return Outcome((), {}, base=Path.cwd().as_posix())
    settings = settings_for(paths, None, False, every_rule(), preview=True)
    names = frozenset(rule.name for rule in suspected)
    with progress("fsdplint: checking…"):
        return run(paths, replace(settings, select=names, per_file_ignores=()))


@cli.command()
@click.option(
    "--output-format", "--format", type=click.Choice(("text", "json", "markdown")), default="text"
)
def rules(output_format: str) -> None:
    """List the rules."""
    if output_format == "json":
        click.echo(json.dumps([_rule(rule) for rule in every_rule()], indent=2))
        return
    if output_format == "markdown":
        click.echo(index(every_rule()), nl=False)
        return
    width = max(len(rule.name) for rule in every_rule())
    for rule in every_rule():
        fix = rule.fix.value if rule.fix else "no"
        click.echo(
            f"{rule.code}  {rule.name:<{width}}  {rule.severity.value:<7}  {fix:<6} fix"
            f"  {rule.summary}{' (preview)' if rule.preview else ''}"
        )


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
    }


@cli.command()
@click.argument("script", type=click.Path())
@click.option("--output-format", type=click.Choice(("text", "json")), default="text")
def inspect(script: str, output_format: str) -> None:
    """Print what is understood of SCRIPT: models, sharding, optimizers, and what is not."""
    from fsdplint.report.inspection import inspection_as_json, inspection_as_text

    with progress("fsdplint: reading…"):
        inspection, outcome = understand(script)
    color = wants_colour(sys.stdout)
    if output_format == "json":
        show(inspection_as_json(inspection, outcome))
    else:
        show(inspection_as_text(inspection, outcome, coloured if color else plain), color)
