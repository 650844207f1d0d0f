"""What one run leaves behind, as values that can be compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

ENDED, RAISED, HUNG, SLOW, DIED = "ended", "raised", "hung", "slow", "died"


@dataclass(slots=True)
class Rank:
    """What one process did.

    Attributes:
        status: whether it ended, raised, waited for other ranks without end, was still at work when
            its time was over, or died by a signal.
        error: the exception's type and message, or the signal.
        stack: the program's part of the traceback, outermost first: the file, the first line of
            the statement, and the function.
        lines: what it printed.
        early: how many lines it had printed at the first backward.
        steps: for each optimizer step, and each parameter, a digest, the sum and the norm.
        losses: the values that backward was called on.
        facts: what was there, see `compare.MAY_CHANGE`.
    """

    status: str = ENDED
    error: str = ""
    stack: list[tuple[str, int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    early: int = 0
    steps: list[list[tuple[str, float, float]]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Rank:
        """Return what `as_json` wrote."""
        steps = [[(d, float(s), float(n)) for d, s, n in step] for step in fields["steps"]]
        stack = [(path, int(line), function) for path, line, function in fields["stack"]]
        return Rank(**{**fields, "steps": steps, "stack": stack})


@dataclass(frozen=True, slots=True)
class Run:
    """What the processes of one run did, and the files they left, by path with a digest."""

    ranks: tuple[Rank, ...]
    files: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether every rank came to its end."""
        return all(rank.status == ENDED for rank in self.ranks)

    @property
    def slow(self) -> bool:
        """Whether it was cut off at work, which says nothing of its end."""
        return any(rank.status == SLOW for rank in self.ranks)

    @property
    def facts(self) -> frozenset[str]:
        """The facts of all ranks."""
        return frozenset(fact for rank in self.ranks for fact in rank.facts)

    def failure(self) -> str:
        """Return how it failed, in one line; "" if it did not."""
        told = {f"{r.status}: {r.error}" for r in self.ranks if r.status in (RAISED, DIED)}
        if not told and not self.ok:
            return HUNG
        return " | ".join(sorted(told))
