"""Forwards go through the hooks that gather a unit's parameters."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.crash import crashes, inside, own_place, unit_frame
from fsdplint.verify.events import Bypass, Ended, Forward, Sharded, Snapshot
from fsdplint.verify.evidence import Run
from fsdplint.verify.messages import CLIPPING_OR_STEP, MIXED


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
            f"`{who}.{first.method}` ran without its unit's hooks ({len(bypasses)} times)",
            _error(run),
            tuple(event.place for event in bypasses),
        )
    mixed = [e for _, e in crashes(run, MIXED) if not inside(e, CLIPPING_OR_STEP)]
    if mixed:
        return violated(_mixed(mixed[0]), _error(run), (own_place(mixed[0]),))
    if not run.all(Sharded):
        return not_exercised("no module was sharded")
    forwards = [event for _, event in run.all(Forward)]
    if not forwards:
        return not_exercised("no sharded module was called")
    # Under activation checkpointing a block is called again, by backward, with nothing around it.
    models = {s.cls for _, s in run.all(Snapshot)} & {f.cls for f in forwards}
    names = models or {forwards[0].cls}
    return confirmed(f"{', '.join(f'`{name}`' for name in sorted(names))} called as a module")


def _mixed(ended: Ended) -> str:
    frame = unit_frame(ended)
    if frame is None:
        return "sharded parameters were used outside their unit's forward"
    name = f"{frame.receiver.removeprefix('FSDP')}.{frame.place.function}"
    return f"`{name}` uses its unit's parameters without the unit's hooks"


def _error(run: Run) -> tuple[str, ...]:
    found = [ended for _, ended in crashes(run, MIXED)]
    return (f"{found[0].kind}: {found[0].message.splitlines()[0]}",) if found else ()
