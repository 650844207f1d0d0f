"""What `check` does with changed files: it shows, proves and writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import click

from fsdplint.commands.options import Options
from fsdplint.outcome import Changes, Outcome, Recheck
from fsdplint.progress import progress
from fsdplint.report.diff import diff as diff_report
from fsdplint.report.places import located, shown
from fsdplint.report.style import coloured, plain
from fsdplint.source import SourceError, SourceFile
from fsdplint.terminal import printable, show, wants_colour


def changed(
    before: Outcome,
    recheck: Recheck,
    piped: Mapping[str, SourceFile],
    script: str,
    options: Options,
    quiet: bool,
) -> tuple[Outcome, Changes | None]:
    """Change files as ``options`` ask for; what is left of ``before``, and the changes if any.

    Args:
        piped: standard input, if that is what is changed.
        script: what is run to prove the changes, if that is asked for.
        quiet: whether the report tells why findings are not fixed.
    """
    with progress("fsdplint: checking…"):
        changes = _made(before, recheck, options)
    if _is_refuted(changes, script, options):
        return before, None
    outcome = _applied(before, changes, piped, options)
    if options.add_ignore is None and not quiet:
        _tell_unfixed(outcome)
    return outcome, changes


def _made(outcome: Outcome, recheck: Recheck, options: Options) -> Changes:
    """What fixing, or silencing, the findings of ``outcome`` comes to."""
    from fsdplint.fixing import fixed

    if options.add_ignore is None:
        return fixed(outcome, recheck, options.unsafe_fixes)
    from fsdplint.ignoring import with_comments

    reason = options.add_ignore.strip()
    return fixed(outcome, recheck, False, lambda found: with_comments(found, reason))


def _is_refuted(changes: Changes, script: str, options: Options) -> bool:
    """Whether running ``script`` with the changes was asked for, and does not prove them."""
    if not (options.proving and changes.files):
        return False
    from fsdplint.verify.gate import proved

    return not proved(changes, script, options.nproc, options.verify_args)


def _applied(
    before: Outcome, changes: Changes, piped: Mapping[str, SourceFile], options: Options
) -> Outcome:
    """Show or write the changes; the outcome that is left, with what could not be written."""
    if options.add_ignore is None:
        return _apply(changes, piped, ("fix", len(changes.fixed)), not options.diff)
    silenced = len(before.findings) - len(changes.outcome.findings)
    return _apply(changes, piped, ("silence", silenced), not options.diff)


def _apply(
    changes: Changes, piped: Mapping[str, SourceFile], did: tuple[str, int], write: bool
) -> Outcome:
    """As `applied`; ``did`` is what the changes do to findings, and to how many."""
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
