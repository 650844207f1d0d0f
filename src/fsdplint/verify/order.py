"""Compare what ranks issued, group by group: where they diverge, and who waits for whom.

Sends and receives are left out, since they need not agree, and so are ranks of other nodes, whose
logs are elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fsdplint.verify.collective_log import BLOCKING, PEER_TO_PEER, Collective

Issued = Mapping[int, Sequence[Collective]]
"""Per rank what it issued, in order."""

_SAME_SIZE = frozenset(
    {
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "all_reduce",
        "all_reduce_coalesced",
        "broadcast",
        "reduce",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
    }
)
"""Operations that need the same number of bytes on every rank."""
_SAME_SIZE_FOR_SOME = frozenset({"all_gather", "reduce_scatter"})
"""Operations that need the same number of bytes with gloo, but not with NCCL."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The first collective of a group that is not the same on all of its ranks.

    Attributes:
        number: of the collective in its group, from 0.
        issued: what each rank issued there.
        absent: ranks that have issued nothing there.
    """

    group: str
    number: int
    issued: dict[int, Collective]
    absent: tuple[int, ...] = ()

    @property
    def began(self) -> float:
        """When the first of them was issued."""
        return min(collective.time for collective in self.issued.values())


def parting(issued: Issued) -> Parting | None:
    """Return the earliest collective that ranks issued differently, or None."""
    found = (_first(group, lanes) for group, lanes in _groups(issued).items())
    return min((p for p in found if p is not None), key=lambda p: p.began, default=None)


def unmatched(issued: Issued) -> Parting | None:
    """Return the earliest collective that some of its group's ranks never issued, or None."""
    found: list[Parting] = []
    for group, lanes in _groups(issued).items():
        number = min(map(len, lanes.values()))
        rest = {rank: lane[number] for rank, lane in lanes.items() if len(lane) > number}
        if rest:
            absent = tuple(sorted(lanes.keys() - rest.keys()))
            found.append(Parting(group, number, rest, absent))
    return min(found, key=lambda p: p.began, default=None)


def stuck(issued: Issued, over: Collection[int], queued: bool = False) -> dict[int, Collective]:
    """Return the ranks that hang, each with the collective it waits in.

    A rank hangs if one of the ranks it waits for has ended or hangs.

    Args:
        over: ranks whose script has ended; they issue nothing more.
        queued: count ranks as waiting that have queued a collective and continued, as on CUDA.
    """
    groups = _groups(issued)
    waits = {rank: w for rank in issued if (w := _wait(rank, groups, queued)) and rank not in over}
    while True:
        hopeful = [rank for rank, (_, whom) in waits.items() if not whom & {*over, *waits}]
        if not hopeful:
            return {rank: collective for rank, (collective, _) in waits.items()}
        for rank in hopeful:
            del waits[rank]


def blocked(at: Parting) -> bool:
    """True if one of the ranks is blocked in it."""
    return any(collective.state in BLOCKING for collective in at.issued.values())


def _groups(issued: Issued) -> dict[str, dict[int, list[Collective]]]:
    """Return per group and rank what it issued there, also for members that issued nothing yet."""
    found: dict[str, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, collectives in issued.items():
        for collective in collectives:
            if collective.operation not in PEER_TO_PEER:
                found[collective.group][rank].append(collective)
    for lanes in found.values():
        members = next(iter(lanes.values()))[0].members
        for rank in issued:
            if not members or rank in members:
                lanes[rank] += []
    return found


def _first(group: str, lanes: dict[int, list[Collective]]) -> Parting | None:
    for number, row in enumerate(zip_longest(*lanes.values())):
        present = {rank: c for rank, c in zip(lanes, row, strict=True) if c is not None}
        if len(present) < 2:
            return None
        if not _agree(list(present.values())):
            absent = tuple(rank for rank in lanes if rank not in present)
            return Parting(group, number, dict(sorted(present.items())), absent)
    return None


def _agree(collectives: list[Collective]) -> bool:
    first = collectives[0]
    if any(c.operation != first.operation for c in collectives):
        return False
    if all(c.size == first.size for c in collectives):
        return True
    if first.operation in _SAME_SIZE_FOR_SOME:
        return not any(c.state in BLOCKING for c in collectives)
    return first.operation not in _SAME_SIZE


def _wait(
    rank: int, groups: dict[str, dict[int, list[Collective]]], queued: bool
) -> tuple[Collective, set[int]] | None:
    """Return the first collective that blocks a rank, and the ranks it waits for."""
    found = [
        (collective, {other for other, lane in lanes.items() if len(lane) <= collective.number})
        for lanes in groups.values()
        for collective in _ahead(rank, lanes)
        if queued or collective.state in BLOCKING
    ]
    return min(found, key=lambda wait: wait[0].time, default=None)


def _ahead(rank: int, lanes: dict[int, list[Collective]]) -> Iterator[Collective]:
    """Yield what a rank has issued in a group and another rank has not."""
    least = min(map(len, lanes.values()))
    yield from lanes.get(rank, [])[least:]
