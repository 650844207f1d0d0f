"""Whether ranks divide the data."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import first_snapshots, is_shard, parameters
from fsdplint.verify.events import Backward, Drawn
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Verdict

_LEAST = 2
"""Different batches that ranks have to share before it is no accident."""


@clause("data", "Each rank trains on batches of its own.", ("batches",))
def data(run: Run) -> Verdict:
    """Judge the batches that loaders gave out last before each backward.

    Ranks that divide a batch among them, as under tensor or sequence parallelism, get the same
    one on purpose; they have process groups of their own.
    """
    trained = {rank.rank: _trained_on(rank) for rank in run.ranks}
    if run.world_size < 2 or len(trained) < run.world_size:
        return not_exercised("not all ranks are seen, or there is one alone")
    if not all(trained.values()):
        return not_exercised("no `DataLoader` gave a batch to a backward on every rank")
    rows = list(zip(*trained.values(), strict=False))
    shared = [row for row in rows if len({drawn.digest for drawn in row}) == 1]
    if len(shared) < len(rows):
        batches = plural(len(rows), "batch", "batches")
        return confirmed(f"{len(rows) - len(shared)} of {batches} differ between ranks")
    if len({row[0].digest for row in shared}) < _LEAST:
        return not_exercised("all ranks got the same batch, which is one alone")
    if reason := _divides(run):
        return not_exercised(f"all ranks get the same batches, and {reason}")
    batches = plural(len(shared), "batch", "batches")
    return violated(
        f"all {plural(run.world_size, 'rank')} train on the same {batches}",
        ("together they learn what one of them would",),
        tuple(drawn.place for drawn in shared[0]),
    )


def _trained_on(rank: RankRun) -> list[Drawn]:
    """Return the batch that was drawn last before each backward."""
    found: list[Drawn] = []
    last: Drawn | None = None
    for event in rank.events:
        if isinstance(event, Drawn):
            last = event
        elif isinstance(event, Backward) and last is not None:
            found.append(last)
            last = None
    return found


def _divides(run: Run) -> str:
    """Return why ranks may get the same batch on purpose; empty where nothing says so."""
    sizes = {len(each.members) for rank in run.ranks for each in rank.collectives}
    if any(1 < size < run.world_size for size in sizes):
        return "some ranks form groups, which may divide a batch among them"
    for rank in run.ranks:
        for snapshot in first_snapshots(rank):
            for _, parameter in parameters(snapshot):
                if sum(map(is_shard, parameter.placements)) > 1:
                    return "tensor parallelism divides a batch among them"
    return ""
