"""A clause: one sentence of the contract, and how a run shows whether it was kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fsdplint.verify.events import Place, ProbeFailed
from fsdplint.verify.evidence import Run
from fsdplint.verify.verdict import Status, Verdict

Decide = Callable[[Run], Verdict]
"""What a clause says of a run, not yet with its name."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause.

    Attributes:
        name: kebab-case, the thing that is judged.
        contract: what has to hold, one sentence.
        probes: the observers it rests on; where one of them failed nothing is known.
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
    """Return the verdict that the run shows the clause to be kept."""
    return Verdict("", "", Status.CONFIRMED, figures, details)


def violated(
    figures: str,
    details: tuple[str, ...] = (),
    places: tuple[Place | None, ...] = (),
    fix: str = "",
) -> Verdict:
    """Return the verdict that the run shows the clause to be broken, at these places.

    Args:
        fix: what to do about it, where that is not what keeps the clause elsewhere.
    """
    known = dict.fromkeys(place for place in places if place is not None)
    return Verdict("", "", Status.VIOLATED, figures, details, tuple(known), fix)


def not_exercised(figures: str) -> Verdict:
    """Return the verdict that the run does not show it, for this reason."""
    return Verdict("", "", Status.NOT_EXERCISED, figures)
