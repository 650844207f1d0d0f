"""Optimizers that hold parameters which sharding replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import BuildOptimizer, Call, Repoint, Shard, Trace
from fsdplint.engine.facts.sharding import replaces
from fsdplint.engine.program import Program
from fsdplint.engine.values import Parameters


@dataclass(frozen=True, slots=True)
class StaleOptimizer:
    """An optimizer that holds parameters which ``shard`` replaced afterwards."""

    build: BuildOptimizer
    capture: Parameters
    shard: Shard
    last: Shard

    @property
    def optimizer_captures(self) -> list[Parameters]:
        return self.build.optimizer.captures


def stale_optimizers(program: Program) -> Iterator[StaleOptimizer]:
    """Optimizers that captured parameters before a sharding call replaced them for good."""
    for trace in program.traces:
        for build in trace.of(BuildOptimizer):
            fact = _stale(program, trace, build)
            if fact is not None:
                yield fact


def _stale(program: Program, trace: Trace, build: BuildOptimizer) -> StaleOptimizer | None:
    if _repaired(trace, build):
        return None
    for capture in build.optimizer.captures:
        later = [shard for shard in trace.of(Shard) if replaces(shard, capture)]
        known = [
            s
            for s in later
            if program.together(capture.source, s.site) and program.together(build.site, s.site)
        ]
        if known and len(known) == len(later):
            return StaleOptimizer(build, capture, known[0], known[-1])
    return None


def _repaired(trace: Trace, build: BuildOptimizer) -> bool:
    """Whether the optimizer is re-pointed, or replaced by a later one and never stepped."""
    shards = [s for s in trace.of(Shard) if any(replaces(s, c) for c in build.optimizer.captures)]
    if not shards:
        return False
    steps = [use.time for use in trace.of(Call) if _is_step(use, build, shards[-1].time)]
    for event in trace.of(Repoint):
        if event.optimizer is build.optimizer and (event.certain or _between(event, shards, steps)):
            return True
    modules = {capture.module for capture in build.captures}
    rebuilt = any(
        capture.module in modules and capture.time > build.time
        for other in trace.of(BuildOptimizer)
        for capture in other.captures
    )
    return rebuilt and not steps


def _is_step(use: Call, build: BuildOptimizer, after: int) -> bool:
    return use.name == "step" and use.receiver is build.optimizer and use.time > after


def _between(event: Repoint, shards: list[Shard], steps: list[int]) -> bool:
    """Whether unknown code had the optimizer and its model before the first step."""
    return event.time > shards[-1].time and (not steps or event.time < steps[0])
