"""A clause: one sentence of the contract, and how a run shows whether it was kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsdplint.verify.events import Place, ProbeFailed
from fsdplint.verify.evidence import Run
from fsdplint.verify.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a clause says of a run; the fields are those of `Verdict`."""

    status: Status
    figures: str
    details: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()


Decide = Callable[[Run], Judgement]


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
        return Verdict(
            self.name, self.contract, found.status, found.figures, found.details, found.places
        )


def clause(name: str, contract: str, probes: tuple[str, ...] = ()) -> Callable[[Decide], Clause]:
    """Declare a clause; the function below decides it."""
    return lambda decide: Clause(name, contract, probes, decide)


def confirmed(figures: str, details: tuple[str, ...] = ()) -> Judgement:
    """The run shows that the clause was kept."""
    return Judgement(Status.CONFIRMED, figures, details)


def violated(
    figures: str, details: tuple[str, ...] = (), places: tuple[Place | None, ...] = ()
) -> Judgement:
    """The run shows that the clause was broken, at these places."""
    known = dict.fromkeys(place for place in places if place is not None)
    return Judgement(Status.VIOLATED, figures, details, tuple(known))


def not_exercised(figures: str) -> Judgement:
    """The run does not show it, for this reason."""
    return Judgement(Status.NOT_EXERCISED, figures)
