"""Forwards go through the hooks that gather a unit's parameters."""

from __future__ import annotations

import re

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.crash import crashes, inside, own_place, unit_frame
from fsdplint.verify.clauses.models import is_shard, parameters
from fsdplint.verify.events import Bypass, Ended, Forward, Parameter, Sharded, Snapshot
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural
from fsdplint.verify.messages import CLIPPING_OR_STEP, MIXED

_OF_WEIGHTS = re.compile(r"aten\.\w*(mm|linear|embedding|convolution|conv\dd|_norm)\b")
"""Operators, as the error names them, that take a weight where they take a DTensor."""


@clause(
    "forward", "Every forward of a unit goes through its hooks.", ("forward", "calls", "sharding")
)
def forward(run: Run) -> Judgement:
    """A direct ``.forward`` and a method of one's own find the parameters still sharded."""
    bypasses = [event for _, event in run.all(Bypass)]
    if bypasses:
        first = bypasses[0]
        who = first.unit or first.cls
        return violated(
            f"`{who}.{first.method}` ran without its unit's hooks "
            f"({plural(len(bypasses), 'time')})",
            _error(run),
            tuple(event.place for event in bypasses),
        )
    mixed = [e for _, e in crashes(run, MIXED) if not inside(e, CLIPPING_OR_STEP)]
    if mixed and (figures := _mixed(run, mixed[0])):
        return violated(figures, _error(run), (own_place(mixed[0]),))
    if mixed:
        return not_exercised("a DTensor met a plain tensor, and it need not be a unit's parameter")
    if not run.all(Sharded):
        return not_exercised("no module was sharded")
    forwards = [event for _, event in run.all(Forward)]
    if not forwards:
        return not_exercised("no sharded module was called")
    # Under activation checkpointing a block is called again, by backward, with nothing around it.
    models = {s.cls for _, s in run.all(Snapshot)} & {f.cls for f in forwards}
    names = models or {forwards[0].cls}
    return confirmed(f"{', '.join(f'`{name}`' for name in sorted(names))} called as a module")


def _mixed(run: Run, ended: Ended) -> str:
    """Says what a crash shows; nothing where the DTensor may be another than a sharded parameter:
    one of tensor parallelism's, or a norm, which meets a plain tensor in arithmetic."""
    if any(_tensor_parallel(p) for _, s in run.all(Snapshot) for _, p in parameters(s)):
        return ""
    frame = unit_frame(ended)
    if frame is None:
        used = _OF_WEIGHTS.search(ended.message)
        return "sharded parameters were used outside their unit's forward" if used else ""
    name = f"{frame.receiver.removeprefix('FSDP')}.{frame.place.function}"
    return f"`{name}` uses its unit's parameters without the unit's hooks"


def _tensor_parallel(parameter: Parameter) -> bool:
    """Says whether more than FSDP divides it, which shards along its mesh's last dimension."""
    shards = [is_shard(placement) for placement in parameter.placements]
    return sum(shards) > 1 or not all(shards[-1:])


def _error(run: Run) -> tuple[str, ...]:
    found = [ended for _, ended in crashes(run, MIXED)]
    return (f"{found[0].kind}: {found[0].message.splitlines()[0]}",) if found else ()
