"""What there is more than once stays equal: replicas over ranks, ties inside a model."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.crash import crashes, own_place
from fsdplint.verify.clauses.models import (
    changes,
    count,
    first_snapshots,
    is_shard,
    listed,
    parameters,
    shards_held,
    without_steps,
)
from fsdplint.verify.events import Parameter, Sharded, Snapshot
from fsdplint.verify.evidence import Run
from fsdplint.verify.messages import SHARED_ACROSS_GROUPS


@clause(
    "replicas",
    "Ranks that keep the same part of a parameter keep the same values.",
    ("optimizer", "step"),
)
def replicas(run: Run) -> Judgement:
    """HSDP keeps each shard several times; whatever changes one copy alone makes them drift."""
    if reason := without_steps(run):
        return not_exercised(reason)
    values: dict[tuple[int, int, str, tuple[int, ...]], dict[int, str]] = {}
    for rank in run.ranks:
        where = {p.name: _part(p) for s in first_snapshots(rank) for _, p in parameters(s)}
        for step, change in changes(rank):
            if (part := where.get(change.name)) is not None:
                key = (step.number, step.optimizer, change.name, part)
                values.setdefault(key, {})[rank.rank] = change.digest
    copies = {key: found for key, found in values.items() if len(found) > 1}
    if not copies:
        return not_exercised("no parameter of a unit is kept by two ranks")
    names = {name for _, _, name, _ in copies}
    drifting = sorted(key for key, found in copies.items() if len(set(found.values())) > 1)
    if drifting:
        first = drifting[0]
        return violated(
            f"{len({key[2] for key in drifting})} of {count(len(names), 'replicated parameter')} "
            f"differ between ranks since step {first[0]}: {listed(key[2] for key in drifting)}",
            (f"`{first[2]}` on ranks {', '.join(map(str, sorted(copies[first])))}",),
        )
    steps = len({key[0] for key in copies})
    return confirmed(
        f"{count(len(names), 'replicated parameter')} equal after {count(steps, 'step')}"
    )


def _part(parameter: Parameter) -> tuple[int, ...] | None:
    """Returns which part of a parameter this rank keeps; None where no other rank keeps it."""
    if not any(
        not is_shard(placement) and size > 1
        for placement, size in zip(parameter.placements, parameter.mesh, strict=False)
    ):
        return None
    return shards_held(parameter)


@clause("ties", "Parameters that were one are still one.", ("ties", "snapshot", "sharding"))
def ties(run: Run) -> Judgement:
    """Tied weights in different units, or tied too late, train apart."""
    refused = crashes(run, SHARED_ACROSS_GROUPS)
    if refused:
        ended = refused[0][1]
        return violated(
            "a tied parameter belongs to two units",
            (f"{ended.kind}: {ended.message}",),
            (own_place(ended), *(event.place for _, event in run.all(Sharded))),
        )
    seen = [(s, tie) for _, s in run.all(Snapshot) for tie in s.ties]
    if not seen:
        return not_exercised("no tied parameters")
    split = [(s, tie) for s, tie in seen if not tie.alive]
    if split:
        snapshot, tie = split[0]
        return violated(
            f"{' and '.join(f'`{name}`' for name in tie.names)} were one parameter and are not "
            f"any more (seen at step {snapshot.step})",
        )
    names = {tie.names for _, tie in seen}
    return confirmed("; ".join(" = ".join(f"`{n}`" for n in tied) for tied in sorted(names)))
