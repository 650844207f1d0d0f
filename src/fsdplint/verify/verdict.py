"""The result of a verification: one verdict per clause of the contract, with its evidence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from fsdplint.verify.events import Memory, Place, Snapshot

CLEAN = ("steps", "script")
"""How a sound rank ends: after the requested steps, or at the script's end."""


class Status(enum.Enum):
    """What a run shows of a clause."""

    CONFIRMED = "confirmed"
    VIOLATED = "violated"
    NOT_EXERCISED = "not exercised"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One clause's verdict.

    Attributes:
        clause: the clause's name, kebab-case.
        contract: what has to hold, one sentence.
        figures: one line with what was seen.
        details: further lines: which parameters, which ranks, the stacks.
        places: the source lines concerned, the one to look at first.
        fix: what to do about it, if it differs from the clause's usual fix.
    """

    clause: str
    contract: str
    status: Status
    figures: str
    details: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    fix: str = ""


def is_violated(verdict: Verdict) -> bool:
    """True if the run violates the clause."""
    return verdict.status is Status.VIOLATED


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one rank sent through one kind of collective: calls and bytes over the whole run."""

    operation: str
    calls: int
    size: int


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank as a whole: how it ended, its memory, its communication.

    Attributes:
        ended: ``steps``, ``script``, ``crash``, ``exit``, ``stuck``, ``working`` or ``waiting``
            for one that was (when time ran out), ``died``, ``stopped`` (by the launcher, since
            another rank had failed) or ``unmappable``.
        error: the rank's traceback or what it left when it died; empty for a clean end.
        device: where its tensors lived, e.g. ``cpu (as cuda:1)``.
        status: of a process that died, its exit status or the negative number of the signal.
    """

    rank: int
    ended: str
    error: str
    steps: int
    device: str
    memory: Memory | None
    traffic: tuple[Traffic, ...]
    output: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about a violated clause, or about what ended the script.

    Attributes:
        rule: the rule that covers it, and where the rule finds it; empty if there is none.
        fix: a verb phrase; empty if unknown.
        command: what to run next; empty if nothing helps.
    """

    rule: str
    fix: str
    command: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The whole result.

    Attributes:
        failure: why the run cannot be judged (the script crashed for another reason, torch is
            missing …), with the rank's traceback; empty if it can.
        snapshots: the model as each rank saw it, by rank.
        failed: the ranks that failed on their own, the first to fail first.
        remedies: by violated clause; the name is empty for a failure that no clause explains.
    """

    script: str
    arguments: tuple[str, ...]
    torch: str
    device: str
    world_size: int
    seconds: float
    verdicts: tuple[Verdict, ...]
    ranks: tuple[RankSummary, ...]
    snapshots: dict[int, tuple[Snapshot, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str = ""
    failed: tuple[int, ...] = ()
    remedies: Mapping[str, Remedy] = field(default_factory=dict)

    @property
    def violated(self) -> tuple[Verdict, ...]:
        """The verdicts on violated clauses."""
        return tuple(filter(is_violated, self.verdicts))

    @property
    def exit_code(self) -> int:
        """0 if no clause is violated, 1 if one is, 2 if the run failed or shows nothing."""
        return 1 if self.violated else 2 if self.failure else 0
