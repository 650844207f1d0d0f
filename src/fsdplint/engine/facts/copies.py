"""Copies of models that hold FSDP2 units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Call, Shard, Trace
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.program import Program
from fsdplint.engine.values import Object
from fsdplint.knowledge.calls import COPIES_MODULE, Generation


@dataclass(frozen=True, slots=True)
class Copy:
    """A deep copy of a module.

    Attributes:
        first: the first call that shards the module or a part of it.
        around: the last one before the copy.
    """

    call: Call
    first: Shard
    around: Shard


def copies(program: Program) -> Iterator[Copy]:
    """Deep copies of modules that are surely FSDP2 units, or have some in them."""
    for trace in program.traces:
        for call in trace.calls(*COPIES_MODULE):
            module = call.argument(0, COPIES_MODULE[call.name])
            if isinstance(module, Object) and module not in trace.picked:
                shards = [s for s in _units_in(trace, module, call) if _both(program, call, s)]
                if shards:
                    yield Copy(call, shards[0], shards[-1])


def _units_in(trace: Trace, module: Object, call: Call) -> list[Shard]:
    return [
        shard
        for shard in trace.of(Shard)
        if shard.generation is Generation.FSDP2
        and shard.time < call.time
        and (shard.module is module or module in shard.module.ancestors())
    ]


def _both(program: Program, call: Call, shard: Shard) -> bool:
    if exclude_each_other(call.site, shard.site):
        return False
    return program.together(call.site, shard.site)
