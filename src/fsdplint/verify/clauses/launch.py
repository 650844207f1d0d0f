"""Ranks, their process group and their devices."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.events import Device, GroupMade, Sharded
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural, ranks_in_words


@clause(
    "device-per-rank",
    "Every rank is in the process group and works on a device of its own.",
    ("group",),
)
def device_per_rank(run: Run) -> Judgement:
    """Two ranks on one GPU share its memory, and NCCL refuses them."""
    groups = run.all(GroupMade)
    if not groups:
        return not_exercised("no process group was made")
    strangers = [
        (rank, made)
        for rank, made in groups
        if (made.rank, made.world_size) != (rank, run.world_size)
    ]
    if strangers:
        rank, made = strangers[0]
        return violated(
            f"rank {rank} of {run.world_size} asks to be rank {made.rank} of {made.world_size}",
            (),
            (made.place,),
        )
    by_device: dict[int, list[int]] = {}
    for rank, device in run.all(Device):
        if device.index is not None:
            by_device.setdefault(device.index, []).append(rank)
    shared = {index: ranks for index, ranks in by_device.items() if len(ranks) > 1}
    if shared:
        index, ranks = next(iter(shared.items()))
        return violated(
            f"{ranks_in_words(ranks)} all work on cuda:{index}",
            ("nothing seen that gives each rank a device of its own (torch.cuda.set_device)",),
            tuple(event.place for _, event in run.all(Sharded)),
        )
    if len(run.all(Device)) < len(run.ranks):
        return not_exercised("not every rank told its device")
    backend = groups[0][1].backend
    devices = ", ".join(f"cuda:{index}" for index in sorted(by_device)) or "the CPU"
    return confirmed(f"{backend}, {plural(run.world_size, 'rank')} on {devices}")
