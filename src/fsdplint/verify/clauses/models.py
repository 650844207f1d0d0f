"""The models of a run, rank by rank, as several clauses ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from fsdplint.verify.events import Change, Parameter, Snapshot, Step, Unit
from fsdplint.verify.evidence import RankRun, Run

SHOWN = 6
"""Names a line of details lists before it only counts."""


def first_snapshots(rank: RankRun) -> list[Snapshot]:
    """Returns each model as it was at its first optimizer step."""
    first: dict[int, Snapshot] = {}
    for snapshot in rank.of(Snapshot):
        first.setdefault(snapshot.model, snapshot)
    return list(first.values())


def parameters(snapshot: Snapshot) -> Iterator[tuple[Unit | None, Parameter]]:
    """Yields a model's parameters with the unit that owns each, or None."""
    for unit in snapshot.units:
        yield from ((unit, parameter) for parameter in unit.parameters)
    yield from ((None, parameter) for parameter in snapshot.outside)


def whole(parameter: Parameter) -> int:
    """Elements of the whole parameter."""
    return prod(parameter.shape)


def part(parameter: Parameter) -> int:
    """Elements of it that this rank keeps."""
    return prod(parameter.local_shape)


def shard_degree(parameter: Parameter) -> int:
    """Over how many ranks its placements divide it."""
    return prod(
        size
        for size, placement in zip(parameter.mesh, parameter.placements, strict=False)
        if is_shard(placement)
    )


def is_shard(placement: str) -> bool:
    """Says whether a placement, as text (``S(0)``, ``Shard(dim=0)``, ``_S(0, 2)``), divides."""
    return placement.lstrip("_").startswith(("S(", "Shard(", "StridedShard("))


def shards_held(parameter: Parameter) -> tuple[int, ...]:
    """Returns which part of a parameter a rank keeps: its coordinates on the meshes that divide."""
    return tuple(
        place
        for place, placement in zip(parameter.coordinate, parameter.placements, strict=False)
        if is_shard(placement)
    )


def changes(rank: RankRun) -> Iterator[tuple[Step, Change]]:
    """Yields what each step did to each parameter."""
    for step in rank.of(Step):
        yield from ((step, change) for change in step.changes)


def listed(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in every[:SHOWN]) + more


def without_steps(run: Run) -> str:
    """Says why nothing is known of steps, or an empty string where there were some."""
    return "" if run.all(Step) else "no optimizer stepped"
