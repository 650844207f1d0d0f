"""Whether ranks train on different data."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import first_snapshots, is_shard, parameters
from fsdplint.verify.collective_log import PEER_TO_PEER
from fsdplint.verify.events import Backward, Drawn, Place
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Verdict

_LEAST = 2
"""Different batches that ranks have to share before it is no accident."""


@dataclass(frozen=True, slots=True)
class _Trained:
    """The batches drawn at the last line before a backward pass, and its loss."""

    batches: tuple[str, ...]
    loss: str
    place: Place | None


@clause("data", "Each rank trains on its own batches.", ("batches",))
def data(run: Run) -> Verdict:
    """Judge the batches that loaders gave out before each backward, and its loss.

    Ranks that split a batch get the same one on purpose. Their losses differ, or they
    communicate in other ways than FSDP does.
    """
    trained = {rank.rank: _trained_on(rank) for rank in run.ranks}
    if run.world_size < 2:
        return not_exercised("there is only one rank")
    if len(trained) < run.world_size:
        return not_exercised("not every rank was observed")
    if not all(trained.values()):
        return not_exercised("not every rank ran a backward pass on a batch of a `DataLoader`")
    rows = list(zip(*trained.values(), strict=False))
    shared = [row for row in rows if len({each.batches for each in row}) == 1]
    if len(shared) < len(rows):
        batches = plural(len(rows), "batch", "batches")
        return confirmed(f"{len(rows) - len(shared)} of {batches} differ between ranks")
    if len({row[0].batches for row in shared}) < _LEAST:
        return not_exercised("all ranks trained on the same batch, but one is too few to judge")
    if reason := _divides(run) or _differ(shared):
        return not_exercised(f"all ranks get the same batches, and {reason}")
    batches = plural(len(shared), "batch", "batches")
    return violated(
        f"all {plural(run.world_size, 'rank')} train on the same {batches}",
        ("together they learn no more than one rank would",),
        tuple(each.place for each in shared[0]),
    )


def _trained_on(rank: RankRun) -> list[_Trained]:
    found: list[_Trained] = []
    drawn: list[Drawn] = []
    for event in rank.events:
        if isinstance(event, Drawn):
            drawn.append(event)
        elif isinstance(event, Backward) and drawn:
            place = drawn[-1].place  # others may have been drawn for an evaluation before
            digests = tuple(each.digest for each in drawn if each.place == place)
            found.append(_Trained(digests, event.loss, place))
            drawn = []
    return found


def _differ(shared: list[tuple[_Trained, ...]]) -> str:
    apart = any(len({each.loss for each in row}) > 1 for row in shared)
    return "their losses differ, so each may use a part of the batch" if apart else ""


def _divides(run: Run) -> str:
    """Return why ranks may get the same batch on purpose; empty if nothing suggests it."""
    every = [each for rank in run.ranks for each in rank.collectives]
    if any(1 < len(each.members) < run.world_size for each in every):
        return "some ranks form process groups, which may split a batch"
    if any(e.operation in PEER_TO_PEER or "all_to_all" in e.operation for e in every):
        return "they exchange activations, as in sequence parallelism"
    for rank in run.ranks:
        for snapshot in first_snapshots(rank):
            for _, parameter in parameters(snapshot):
                if sum(map(is_shard, parameter.placements)) > 1:
                    return "tensor parallelism splits the work on a batch"
    return ""
