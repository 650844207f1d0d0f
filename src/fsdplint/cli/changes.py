"""Show, prove and write the changed files of `check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from fsdplint.cli.options import Options
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile
from fsdplint.files.links import DECLINED
from fsdplint.finding import Finding
from fsdplint.outcome import Changes, Outcome, Recheck
from fsdplint.process.terminal import printable, progress, show, wants_colour
from fsdplint.report.diff import diff as diff_report
from fsdplint.report.places import located, shown
from fsdplint.report.style import Style

_NO_COMMENTS = "JSON has no comments; use per-file-ignores or a baseline"

Files = Sequence[tuple[SourceFile, SourceFile]]


def changed(
    before: Outcome,
    recheck: Recheck,
    piped: Mapping[str, SourceFile],
    script: str,
    options: Options,
    reasons: bool,
) -> tuple[Outcome, Changes | None]:
    """Change files as ``options`` say; return what is left of ``before``, and the changes.

    Args:
        piped: standard input, if that is what is changed.
        script: what --verify runs to prove the changes.
        reasons: whether to print why findings are not fixed.
    """
    with progress("fsdplint: checking…"):
        changes = _made(before, recheck, options)
    if _is_refuted(changes, script, options):
        return before, None
    if not (options.diff or piped):
        changes = written(changes, recheck, at_once=options.proving)
    _print_changes(before, changes, piped, options)
    if options.add_ignore is None and reasons:
        _print_unfixed(changes.outcome)
    return changes.outcome, changes


def _made(outcome: Outcome, recheck: Recheck, options: Options) -> Changes:
    """Return the changes that fix, or suppress, the findings of ``outcome``."""
    from fsdplint.fixes.apply import fixed

    if options.add_ignore is None:
        return fixed(outcome, recheck, options.unsafe_fixes)
    from fsdplint.suppression.add_ignore import NO_COMMENTS, with_comments

    reason = options.add_ignore.strip()
    changes = fixed(outcome, recheck, False, lambda found: with_comments(found, reason))
    linked = [(path, DECLINED.format("it")) for path in sorted(outcome.linked)]
    others = {finding.span.path for finding in outcome.findings} - outcome.linked
    bare = [(path, _NO_COMMENTS) for path in sorted(others) if path.endswith(NO_COMMENTS)]
    return replace(changes, notes=(*changes.notes, *linked, *bare))


def _is_refuted(changes: Changes, script: str, options: Options) -> bool:
    """Return whether --verify was given and running ``script`` does not prove the changes."""
    if not (options.proving and changes.files):
        return False
    from fsdplint.verify.gate import proved

    return not proved(
        changes, script, options.nproc, options.verify_args, options.steps, options.timeout
    )


def _print_changes(
    before: Outcome, changes: Changes, piped: Mapping[str, SourceFile], options: Options
) -> None:
    """Show the changes where they are not written, and say what they come to."""
    for path, note in () if options.quiet else changes.notes:
        click.echo(f"fsdplint: {shown(changes.outcome, path)}: {printable(note)}", err=True)
    if options.diff:
        color = wants_colour(sys.stdout)
        exact = sys.stdout is None or not sys.stdout.isatty()
        # In colour even without: it would be stripped off the user's own strings.
        show(diff_report(changes, Style(color), exact), color=True)
    elif piped:
        _print_source(piped, changes)
    silenced = len(before.findings) - len(changes.outcome.findings)
    fixing = options.add_ignore is None
    verb, count = ("fix", len(changes.fixed)) if fixing else ("suppress", silenced)
    if changes.fixed and not options.quiet:
        findings = f"{count} finding{'s'[: count != 1]}"
        # The report that follows is on files that nobody has yet.
        would = f"Would {verb} {findings}." + ("" if options.fix_only else " After that:")
        click.echo(would if options.diff else f"{verb.capitalize()}ed {findings}.", err=True)


def _print_unfixed(outcome: Outcome) -> None:
    """Print why findings have no fix, which most formats do not show."""
    for finding in outcome.findings:
        if finding.fix is None:
            where = located(outcome, finding.span)
            reason = finding.fix_declined or "there is no fix"
            click.echo(
                f"fsdplint: {where}: {finding.rule} is not fixed: {printable(reason)}", err=True
            )


def written(changes: Changes, recheck: Recheck, at_once: bool) -> Changes:
    """Write the changes: those that could be written, and what is then found on the disk.

    Args:
        at_once: whether none is to be written unless all are.
    """
    from fsdplint.files.writing import write

    failures: dict[str, SourceError] = {}
    for files in [changes.files] if at_once else [(file,) for file in changes.files]:
        try:
            write(*files)
        except SourceError as error:
            failures |= {failure.path: failure for failure in _unwritten(error, files)}
    if not failures:
        return changes
    with progress("fsdplint: checking…"):
        left = _with_reasons(recheck({}), changes.outcome)
    return replace(
        changes,
        outcome=replace(left, failures=(*left.failures, *failures.values())),
        files=tuple(file for file in changes.files if file[0].path not in failures),
        fixed=tuple(fixed for fixed in changes.fixed if not failures.keys() & _edited(fixed)),
    )


def _edited(finding: Finding) -> frozenset[str]:
    edits = finding.fix.edits if finding.fix else ()
    return frozenset(edit.span.path for edit in edits)


def _unwritten(error: SourceError, files: Files) -> Iterator[SourceError]:
    """Yield a failure for each of ``files``, one of which could not be written."""
    yield error
    for before, _ in files:
        if before.path != error.path:
            name = Path(error.path).name
            reason = f"not written, because {name} could not be written along with it"
            yield SourceError(before.path, reason)


def _with_reasons(outcome: Outcome, known: Outcome) -> Outcome:
    """Return ``outcome`` with the reasons from ``known`` why findings are not fixed."""
    declined = {replace(f, fix_declined=""): f for f in known.findings if f.fix is None}
    findings = (declined.get(replace(f, fix=None, fix_declined=""), f) for f in outcome.findings)
    return replace(outcome, findings=tuple(findings))


def _print_source(piped: Mapping[str, SourceFile], changes: Changes) -> None:
    after = {old.path: new for old, new in changes.files}
    stdout = sys.stdout.buffer
    for path, source in piped.items():
        stdout.write(after.get(path, source).encode())
    stdout.flush()
