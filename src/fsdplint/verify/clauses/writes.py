"""Writes that belong together, and what they hold of each state in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from fsdplint.verify.events import Part, Place, Save
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.verdict import CLEAN

Write = tuple[int, Save]
"""A rank and what it wrote."""
Cut = tuple[tuple[int, ...], tuple[int, ...]]
"""Who hold tensors together, and into how many parts they are cut."""


Amount = tuple[int, int]
"""Elements held, of elements in all."""


@dataclass
class Tally:
    """What is held of one state.

    Attributes:
        cuts: per way of cutting, position and rank: the elements held, and of how many in all.
        elements: in entries that are whole.
        names: parameters of the model, `missing` those that nothing is held of.
    """

    cuts: dict[Cut, dict[tuple[int, ...], dict[int, Amount]]] = field(default_factory=dict)
    elements: int = 0
    odd: int = 0
    names: int = 0
    missing: frozenset[str] | None = None

    def add(self, rank: int, part: Part) -> None:
        """Add a rank's slices."""
        by_rank = self.cuts.setdefault((part.ranks, part.of), {}).setdefault(part.position, {})
        elements, whole = by_rank.get(rank, (0, 0))
        by_rank[rank] = (elements + part.elements, whole + part.whole)

    def amounts(self) -> dict[Cut, Amount]:
        """Return how many elements are held of how many, each position once."""
        found = {}
        for cut, positions in self.cuts.items():
            each = [max(by_rank.values()) for by_rank in positions.values()]
            found[cut] = (sum(elements for elements, _ in each), max(whole for _, whole in each))
        return found

    @property
    def held(self) -> int:
        """Elements of sliced tensors that are held."""
        return sum(elements for elements, _ in self.amounts().values())

    @property
    def whole(self) -> int:
        """Elements of these tensors in all."""
        return sum(whole for _, whole in self.amounts().values())

    def lacking(self) -> set[int]:
        """Return the ranks that hold together what is not held in all."""
        return {
            rank
            for (ranks, _), (elements, whole) in self.amounts().items()
            if elements < whole
            for rank in ranks
        }


@dataclass(frozen=True)
class Pool:
    """Writes of one moment: files written at one line, or one distributed checkpoint."""

    writes: tuple[Write, ...]

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.writes[0][1].step

    @property
    def place(self) -> Place | None:
        """Where the first of them was written."""
        return self.writes[0][1].place

    @property
    def distributed(self) -> bool:
        """It is one checkpoint of all ranks."""
        return self.writes[0][1].distributed

    @cached_property
    def writers(self) -> dict[str, tuple[int, ...]]:
        """The ranks that wrote to each path."""
        found: dict[str, dict[int, None]] = defaultdict(dict)
        for rank, save in self.writes:
            found[save.path][rank] = None
        return {path: tuple(ranks) for path, ranks in found.items()}

    @cached_property
    def contested(self) -> tuple[str, ...]:
        """Paths to which several ranks wrote a file of their own; one of them stays."""
        if self.distributed:
            return ()
        return tuple(path for path, ranks in self.writers.items() if path and len(ranks) > 1)

    @cached_property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """What stays, per state and class of its model."""
        found: dict[tuple[str, str], Tally] = defaultdict(Tally)
        for rank, save in self.writes:
            if save.path in self.contested and self.writers[save.path][0] != rank:
                continue
            for state in save.states:
                tally = found[state.what, state.cls]
                for part in state.parts:
                    tally.add(rank, part)
                tally.odd += state.odd
                tally.names = max(tally.names, state.names)
                known = tally.missing
                missing = frozenset(state.missing)
                tally.missing = missing if known is None else known & missing
                if rank == self.writes[0][0]:  # other ranks' whole tensors are the same ones
                    tally.elements += state.elements
        return found

    def lacking(self) -> set[int]:
        """Return the ranks whose slices would have to be there, where some are not."""
        return {rank for tally in self.tallies.values() for rank in tally.lacking()}


def pools(writes: Iterable[Write]) -> list[Pool]:
    """Return the writes by what belongs together, in order.

    Files that lack something are looked at once more, together with the others of the same step:
    ranks may write their parts at different lines.
    """
    writes = list(writes)
    checkpoints = _grouped((w for w in writes if w[1].distributed), lambda s: (s.step, s.path))
    files = _grouped(
        (w for w in writes if not w[1].distributed),
        lambda s: (s.step, s.place, s.path if _complete(s) else ""),
    )
    apart = [pool for pool in files if pool.lacking() and not pool.contested]
    joined = _grouped((w for pool in apart for w in pool.writes), lambda s: s.step)
    together = [pool for pool in joined if not pool.lacking()]
    steps = {pool.step for pool in together}
    kept = [pool for pool in files if pool not in apart or pool.step not in steps]
    return [*kept, *together, *checkpoints]


def _complete(save: Save) -> bool:
    """True if a file is a whole model's by itself; a library writes several at one line."""
    models = [state for state in save.states if state.what == "model"]
    whole = not any(state.missing or state.odd for state in models)
    return bool(models) and whole and not any(state.parts for state in save.states)


def _grouped(writes: Iterable[Write], key: Callable[[Save], Hashable]) -> list[Pool]:
    found: dict[Hashable, list[Write]] = defaultdict(list)
    for rank, save in writes:
        found[key(save)].append((rank, save))
    return [Pool(tuple(group)) for group in found.values()]


def passed(run: Run, pool: Pool) -> bool:
    """True if every rank whose slices are missing has come past the place of the write."""
    ranks = {rank.rank: rank for rank in run.ranks}
    wrote = {rank for rank, _ in pool.writes}
    return all(
        rank in wrote or (rank in ranks and _came_past(ranks[rank], pool.step))
        for rank in pool.lacking()
    )


def _came_past(rank: RankRun, step: int) -> bool:
    ended = rank.ended
    return ended is not None and (ended.how in CLEAN or ended.steps > step)
