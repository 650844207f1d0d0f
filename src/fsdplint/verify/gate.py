"""`fsdplint check --fix --verify`: changes are written only if runs on ranks prove them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding
from fsdplint.outcome import Changes
from fsdplint.pages.diagnosis import diagnose
from fsdplint.process.terminal import printable, status_line
from fsdplint.rules import RULES
from fsdplint.verify.command import below, ensure_torch, length
from fsdplint.verify.figures import plural
from fsdplint.verify.launch import Launcher
from fsdplint.verify.remedies import failure_text
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Status, Verification
from fsdplint.verify.warm_launcher import Warm
from fsdplint.verify.workspace import VerifyError

_COLLECTIVES = "collectives"
_SAVES = "saves"
"""The clause that a script mostly exercises at its end, after the last step."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What two runs show about a fix.

    Attributes:
        clauses: those that the fixed rules cover, in order.
        refusal: why the fix is not proved; empty if it is.
    """

    before: Verification
    after: Verification
    clauses: tuple[str, ...]
    refusal: str


def prove(
    request: Request,
    directory: Path,
    overlay: Mapping[str, bytes],
    clauses: tuple[str, ...],
    rules: tuple[str, ...],
    launcher: Launcher,
    progress: Callable[[str], None],
) -> Proof:
    """Run the script as it is and with `overlay`, and compare the verdicts.

    Raises:
        VerifyError: as `verify`.
    """
    progress("verifying the original script")
    before = verify(request, directory, launcher=launcher)
    progress("verifying the fixed script")
    after = verify(request, directory, overlay=overlay, launcher=launcher)
    return Proof(before, after, clauses, _refusal(before, after, clauses, rules))


def _refusal(
    before: Verification, after: Verification, clauses: tuple[str, ...], rules: tuple[str, ...]
) -> str:
    """Return why the fix is not proved; empty if every fixed clause went from violated to confirmed
    and no other is violated, or if a crash is gone that a fixed rule explains."""
    if before.failure and not before.violated:
        explained = {match.rule.name for match in diagnose(failure_text(before), RULES)}
        if not explained & {*rules}:
            return f"the script fails without the fix: {before.failure.splitlines()[0]}"
        clauses = ()
    was = {verdict.clause: verdict for verdict in before.verdicts}
    now = {verdict.clause: verdict for verdict in after.verdicts}
    for clause in clauses:
        if was[clause].status is not Status.VIOLATED:
            return f"`{clause}` is not violated without the fix ({was[clause].figures})"
    for verdict in after.violated:
        when = "still" if was[verdict.clause].status is Status.VIOLATED else "newly"
        return f"`{verdict.clause}` is {when} violated with the fix ({verdict.figures})"
    for verdict in before.violated:
        if now[verdict.clause].status is not Status.CONFIRMED:
            return (
                f"`{verdict.clause}` is not confirmed with the fix ({now[verdict.clause].figures})"
            )
    return f"the fixed script fails: {after.failure.splitlines()[0]}" if after.failure else ""


def proved(
    changes: Changes,
    script: str,
    ranks: int,
    arguments: str,
    steps: str,
    timeout: float,
) -> bool:
    """Run the script without and with the fix, report the verdicts on standard error, and return
    whether the changes may be written.

    Args:
        arguments: the script's own, as a shell would read them.
        steps: how many to run, or ``all``; if empty, as many as the fixed clauses need.
        timeout: seconds that each run may take.
    """
    ensure_torch()
    directory = Path.cwd()
    clauses = tuple(dict.fromkeys(filter(None, map(_clause, changes.fixed))))
    rules = tuple(dict.fromkeys(each.rule for each in changes.fixed))
    unshown = dict.fromkeys(each.rule for each in changes.fixed if _clause(each) is None)
    request = Request(below(script, directory), split(arguments), ranks, timeout=timeout)
    if steps or _SAVES in clauses:
        request = replace(request, steps=length(steps or "all"))
    _print(
        f"fsdplint: running {request.script} on {plural(ranks, 'rank')} without and with the fix, "
        f"in scratch copies of {directory}; files it writes elsewhere stay"
    )
    try:
        with status_line() as progress, Warm() as launcher:
            changed = overlay(changes.files, directory)
            proof = prove(request, directory, changed, clauses, rules, launcher, progress)
            if not steps and request.steps is not None and _may_come_later(proof):
                request = replace(request, steps=None)
                proof = prove(request, directory, changed, clauses, rules, launcher, progress)
    except VerifyError as error:
        raise click.ClickException(str(error)) from error
    _say(proof)
    crashed = bool(proof.before.failure and not proof.before.violated)
    if crashed and not proof.refusal:
        _print(f"Without the fix: {proof.before.failure.splitlines()[0]}. With it: no error.")
    elif unshown and not proof.refusal:
        _print(
            f"No clause covers {', '.join(unshown)}: the runs prove only that the fixed script "
            f"still {_reached(request)} and violates no clause."
        )
    return not proof.refusal


def _reached(request: Request) -> str:
    if request.steps is None:
        return "finishes"
    return f"takes its first {plural(request.steps, 'step')}"


def _may_come_later(proof: Proof) -> bool:
    """True if the first steps do not show a fault that may come later, such as a hang in a save."""
    was = {verdict.clause: verdict.status for verdict in proof.before.verdicts}
    return _COLLECTIVES in proof.clauses and was[_COLLECTIVES] is not Status.VIOLATED


def split(arguments: str) -> tuple[str, ...]:
    """Return the words of --verify-args.

    Raises:
        click.UsageError: a quotation is not closed.
    """
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        raise click.UsageError(f"cannot parse --verify-args: {error}") from error


def _clause(finding: Finding) -> str | None:
    return next(rule.clause for rule in RULES if rule.name == finding.rule)


def overlay(files: Sequence[tuple[SourceFile, SourceFile]], directory: Path) -> dict[str, bytes]:
    """Return the changed files by their path in the directory.

    Raises:
        VerifyError: one of them is outside.
    """
    found = {}
    for _, after in files:
        path = os.path.relpath(after.path, directory)
        if path.startswith(os.pardir):
            raise VerifyError(f"{path} is changed, too, but verify copies only {directory}")
        found[path] = after.encode()
    return found


def _say(proof: Proof) -> None:
    was = {verdict.clause: verdict.status.value for verdict in proof.before.verdicts}
    for verdict in proof.after.verdicts:
        if verdict.clause in proof.clauses:
            change = f"{was[verdict.clause]} → {verdict.status.value}"
            _print(f"{verdict.clause}: {change} ({verdict.figures})")
    if proof.refusal:
        _print(f"No fix was written: {proof.refusal}.")


def _print(text: str) -> None:
    click.echo(printable(text), err=True)
