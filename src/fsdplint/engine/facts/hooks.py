"""Calls that go around the hooks of an FSDP2 unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import DirectForward, Shard
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program


@dataclass(frozen=True, slots=True)
class SkippedHooks:
    """A ``.forward`` of an FSDP2 unit that was called without its hooks."""

    forward: DirectForward
    shard: Shard


def skipped_hooks(program: Program) -> Iterator[SkippedHooks]:
    """Forward calls that go around the hooks of an FSDP2 unit."""
    for trace in program.traces:
        for event in trace.of(DirectForward):
            shard = sharding_of(trace, event.module)
            if shard is not None and program.together(event.site, shard.site):
                yield SkippedHooks(event, shard)
