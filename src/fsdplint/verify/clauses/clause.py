"""A clause: one sentence of the contract, and how to judge it on a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fsdplint.verify.events import Place, ProbeFailed
from fsdplint.verify.evidence import Run
from fsdplint.verify.verdict import Status, Verdict

Decide = Callable[[Run], Verdict]
"""A function that judges a run; its verdict has no name yet."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause.

    Attributes:
        name: kebab-case, the thing that is judged.
        contract: what has to hold, one sentence.
        probes: the observers it depends on; if one of them failed, nothing is known.
    """

    name: str
    contract: str
    probes: tuple[str, ...]
    decide: Decide

    def judge(self, run: Run) -> Verdict:
        """Return the verdict on a run."""
        found = self.decide(run)
        failed = next((p for _, p in run.all(ProbeFailed) if p.probe in self.probes), None)
        if failed is not None and found.status is not Status.VIOLATED:
            found = not_exercised(f"could not be observed ({failed.probe}: {failed.error})")
        return replace(found, clause=self.name, contract=self.contract)


def clause(name: str, contract: str, probes: tuple[str, ...] = ()) -> Callable[[Decide], Clause]:
    """Declare a clause; the function below decides it."""
    return lambda decide: Clause(name, contract, probes, decide)


def confirmed(figures: str, details: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict that the run keeps the clause."""
    return Verdict("", "", Status.CONFIRMED, figures, details)


def violated(
    figures: str,
    details: tuple[str, ...] = (),
    places: tuple[Place | None, ...] = (),
    fix: str = "",
) -> Verdict:
    """Return the verdict that the run violates the clause, at these places.

    Args:
        fix: what to do about it, if it differs from the clause's usual fix.
    """
    known = dict.fromkeys(place for place in places if place is not None)
    return Verdict("", "", Status.VIOLATED, figures, details, tuple(known), fix)


def not_exercised(figures: str) -> Verdict:
    """Return the verdict that the run does not exercise the clause, for this reason."""
    return Verdict("", "", Status.NOT_EXERCISED, figures)
