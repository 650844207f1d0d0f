"""When gradients are reduced: what steers it, and what cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import NoSync, Shard
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program


@dataclass(frozen=True, slots=True)
class MissingNoSync:
    """``no_sync()`` of an FSDP2 unit, which has no such method."""

    call: NoSync
    shard: Shard


def missing_no_syncs(program: Program) -> Iterator[MissingNoSync]:
    """Calls of FSDP1's ``no_sync`` on an FSDP2 unit."""
    for trace in program.traces:
        for event in trace.of(NoSync):
            shard = sharding_of(trace, event.module)
            if shard is not None and program.together(event.site, shard.site):
                yield MissingNoSync(event, shard)
