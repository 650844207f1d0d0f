"""Queries that clauses share: a run's models, rank by rank, its crashes, and PyTorch's errors.

The texts of errors are those of torch 2.6 to 2.15.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from math import prod

from fsdplint.verify.events import (
    Change,
    Ended,
    Frame,
    Parameter,
    Place,
    Sharded,
    Snapshot,
    Step,
    Unit,
)
from fsdplint.verify.evidence import RankRun, Run

MIXED = "got mixed torch.Tensor and DTensor"
"""DTensor's dispatcher, where a sharded parameter meets a plain tensor."""
SHARED_ACROSS_GROUPS = "is shared with a parameter already managed by another FSDP group"
"""FSDP2 at its first forward, from torch 2.12 on, for ties across units."""
MISSING = re.compile(r"'FSDP(?P<cls>\w+)' object has no attribute '(?P<name>\w+)'")
"""`nn.Module`'s, for a method that FSDP2 modules do not have."""
LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection was likely closed",
    "remote process exit",
)
"""Of gloo, sockets, torch's store and NCCL, for a rank that is gone."""
CLIPPING_OR_STEP = ("clip_grad", "_get_total_norm", "_multi_tensor", "_single_tensor", "_foreach")
"""Functions of torch that combine all parameters of a model, with what their names begin with."""


_SHORT = 120
"""Characters of a line of an error."""
SHOWN = 6
"""Names a line of details lists before it only counts."""


def first_snapshots(rank: RankRun) -> list[Snapshot]:
    """Return each model as it was at its first optimizer step."""
    first: dict[int, Snapshot] = {}
    for snapshot in rank.of(Snapshot):
        first.setdefault(snapshot.model, snapshot)
    return list(first.values())


def parameters(snapshot: Snapshot) -> Iterator[tuple[Unit | None, Parameter]]:
    """Yield a model's parameters with the unit that owns each, or None."""
    for unit in snapshot.units:
        yield from ((unit, parameter) for parameter in unit.parameters)
    yield from ((None, parameter) for parameter in snapshot.outside)


def whole(parameter: Parameter) -> int:
    """Return the elements of the whole parameter."""
    return prod(parameter.shape)


def part(parameter: Parameter) -> int:
    """Return the elements of it that this rank holds."""
    return prod(parameter.local_shape)


def shard_degree(parameter: Parameter) -> int:
    """Return over how many ranks its placements divide it."""
    return prod(
        size
        for size, placement in zip(parameter.mesh, parameter.placements, strict=False)
        if is_shard(placement)
    )


def is_shard(placement: str) -> bool:
    """True if a placement, as text (``S(0)``, ``Shard(dim=0)``, ``_S(0, 2)``), divides."""
    return placement.lstrip("_").startswith(("S(", "Shard(", "StridedShard("))


def shards_held(parameter: Parameter) -> tuple[int, ...]:
    """Return which shard of a parameter a rank holds: its coordinates on the sharding mesh dims."""
    return tuple(
        place
        for place, placement in zip(parameter.coordinate, parameter.placements, strict=False)
        if is_shard(placement)
    )


def is_replicated(parameter: Parameter) -> bool:
    """True if other ranks hold the same shard of a parameter as this rank."""
    if not parameter.placements:
        return len(parameter.ranks) > 1
    return any(
        not is_shard(placement) and size > 1
        for placement, size in zip(parameter.placements, parameter.mesh, strict=False)
    )


def changes(rank: RankRun) -> Iterator[tuple[Step, Change]]:
    """Yield what each step did to each parameter."""
    for step in rank.of(Step):
        yield from ((step, change) for change in step.changes)


def in_short(message: str) -> str:
    """Return the first and the last line of an error's message; in errors of `load_state_dict` and
    of distributed checkpoints, the last one names the cause."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ends = dict.fromkeys([*lines[:1], *lines[-1:]])
    return " … ".join(textwrap.shorten(line, _SHORT, placeholder=" …") for line in ends)


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in every[:SHOWN]) + more


def without_steps(run: Run) -> str:
    """Return why there are no steps to judge; empty if there are some."""
    return "" if run.all(Step) else "no optimizer stepped"


def crashes(run: Run, message: str) -> list[tuple[int, Ended]]:
    """Return the ranks that ended with an error whose text holds `message`."""
    return [
        (rank.rank, rank.ended)
        for rank in run.ranks
        if rank.ended and rank.ended.how == "crash" and message in rank.ended.message
    ]


def refusals(run: Run) -> Iterator[tuple[str, Ended]]:
    """Yield the attributes that FSDP2 modules lack, with the crashes that show it."""
    classes = {event.cls for _, event in run.all(Sharded) if event.api == "fsdp2"}
    for _, ended in crashes(run, ""):
        match = MISSING.search(ended.message)
        if match and match["cls"] in classes:
            yield match["name"], ended


def own_place(ended: Ended) -> Place | None:
    """Return the innermost line of the user's code in a traceback."""
    return next((frame.place for frame in reversed(ended.frames) if frame.own), None)


def unit_frame(ended: Ended) -> Frame | None:
    """Return the innermost frame of the user's code that is a method of an FSDP2 unit."""
    return next((f for f in reversed(ended.frames) if f.own and f.unit), None)


def inside(ended: Ended, prefixes: tuple[str, ...]) -> bool:
    """True if the error comes from a function whose name starts with one of the prefixes."""
    return any(frame.place.function.startswith(prefixes) for frame in ended.frames)
