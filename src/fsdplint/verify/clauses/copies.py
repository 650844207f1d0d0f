"""Whether copies stay equal: replicas over ranks, ties inside a model."""

from __future__ import annotations

from typing import NamedTuple

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.initialisation import unequal
from fsdplint.verify.clauses.queries import (
    SHARED_ACROSS_GROUPS,
    changes,
    crashes,
    first_snapshots,
    is_replicated,
    listed,
    own_place,
    parameters,
    shards_held,
    without_steps,
)
from fsdplint.verify.events import Sharded, Snapshot
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.verdict import Verdict


@clause(
    "replicas",
    "Ranks that hold the same shard of a parameter hold the same values.",
    ("optimizer", "step"),
)
def replicas(run: Run) -> Verdict:
    """Judge replicas, as HSDP has them: a change of one replica alone makes them drift."""
    if reason := without_steps(run):
        return not_exercised(reason)
    if unequal(run):
        return not_exercised("replicas differ before the first step (see `initialised`)")
    copies = {copy: digests for copy, digests in _copies(run).items() if len(digests) > 1}
    if not copies:
        return not_exercised("no two ranks hold the same shard")
    parameters = {copy.parameter for copy in copies}
    last: dict[object, int] = {}
    for copy in copies:
        kind = copy._replace(step=0)
        last[kind] = max(copy.step, last.get(kind, 0))
    apart = [copy for copy, digests in copies.items() if len(set(digests.values())) > 1]
    ends = {kind for copy in apart if last[kind := copy._replace(step=0)] == copy.step}
    drifting = sorted(copy for copy in apart if copy._replace(step=0) in ends)
    if drifting:
        first = drifting[0]
        number = len({copy.parameter for copy in drifting})
        return violated(
            f"{number} of {plural(len(parameters), 'replicated parameter')} "
            f"differ{'s' * (number == 1)} between ranks since step {first.step}: "
            f"{listed(copy.parameter[1] for copy in drifting)}",
            (f"replicas of `{first.parameter[1]}` are on {ranks_in_words(copies[first])}",),
        )
    steps = len({copy.step for copy in copies})
    return confirmed(
        f"{plural(len(parameters), 'replicated parameter')} equal after {plural(steps, 'step')}"
    )


class _Copy(NamedTuple):
    """A shard that several ranks hold after a step: part of a model's parameter on one mesh."""

    step: int
    optimizer: int
    parameter: tuple[int, str]
    part: tuple[int, ...]
    mesh: tuple[int, ...]


def _copies(run: Run) -> dict[_Copy, dict[int, str]]:
    """Return the digests of shards that several ranks may hold, by rank."""
    found: dict[_Copy, dict[int, str]] = {}
    for rank in run.ranks:
        held = {(s.model, p.name): p for s in first_snapshots(rank) for _, p in parameters(s)}
        for step, change in changes(rank):
            key = (change.model, change.name)
            if (p := held.get(key)) is not None and is_replicated(p):
                copy = _Copy(step.number, step.optimizer, key, shards_held(p), p.ranks)
                found.setdefault(copy, {})[rank.rank] = change.digest
    return found


@clause("ties", "Tied parameters stay tied.", ("ties", "snapshot", "sharding"))
def ties(run: Run) -> Verdict:
    """Judge ties: weights in different units, or tied too late, train apart."""
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
            f"{' and '.join(f'`{name}`' for name in tie.names)} are no longer tied at step "
            f"{snapshot.step + 1}: they train apart",
        )
    names = {tie.names for _, tie in seen}
    return confirmed("; ".join(" = ".join(f"`{n}`" for n in tied) for tied in sorted(names)))
