"""A fix proved on ranks: the program as it is and as it would be, run side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsdplint.verify.launch import Launcher
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Status, Verification


@dataclass(frozen=True, slots=True)
class Proof:
    """What two runs say of a fix.

    Attributes:
        clauses: those that the fixed rules stand for, in order.
        refusal: why the fix is not proved; empty where it is.
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
    launcher: Launcher,
    tell: Callable[[str], None],
) -> Proof:
    """Runs the script as it is and with `overlay`, and says whether the second keeps what the
    first broke.

    Raises:
        VerifyError, StageError: as `verify`.
    """
    tell("verifying the script as it is")
    before = verify(request, directory, launcher=launcher)
    tell("verifying the fixed script")
    after = verify(request, directory, overlay=overlay, launcher=launcher)
    return Proof(before, after, clauses, _refusal(before, after, clauses))


def _refusal(before: Verification, after: Verification, clauses: tuple[str, ...]) -> str:
    """Returns one sentence, or nothing where every fixed clause went from violated to confirmed
    and nothing else is broken."""
    if before.failure and not before.violated:
        return f"the script fails as it is: {before.failure.splitlines()[0]}"
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
