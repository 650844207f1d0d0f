"""Arguments that `fully_shard` does not take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.facts.caught import is_caught
from fsdplint.engine.program import Program
from fsdplint.engine.values import reachable
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fully_shard import FOREIGN, SINCE


@dataclass(frozen=True, slots=True)
class ForeignArguments:
    """A call of FSDP2's `fully_shard` that raises a TypeError for its arguments.

    Attributes:
        names: keywords of FSDP1 or DDP, in the order of the call.
        late: keywords that a release which the code is meant for does not have yet.
        positional: how many arguments it is given behind the module without a keyword.
        blocks_sharded: other calls shard parts of the module.
    """

    shard: Shard
    names: tuple[str, ...]
    late: tuple[str, ...]
    positional: int
    blocks_sharded: bool


def foreign_arguments(program: Program) -> Iterator[ForeignArguments]:
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is not Generation.FSDP2:
                continue
            names = tuple(name for name in shard.keywords if name in FOREIGN)
            late = tuple(name for name in shard.keywords if _is_late(program, name))
            positional = max(0, len(shard.positional) - 1)
            wrong = names or late or positional
            if wrong and not is_caught(program, shard.site, "TypeError"):
                inside = _parts_sharded(trace, shard)
                yield ForeignArguments(shard, names, late, positional, inside)


def _is_late(program: Program, keyword: str) -> bool:
    return keyword in SINCE and program.torch.concerns(upper=SINCE[keyword])


def _parts_sharded(trace: Trace, root: Shard) -> bool:
    parts = {part for part in reachable(root.module) if part is not root.module}
    others = [shard.module for shard in trace.of(Shard) if shard.module is not root.module]
    return any(each in parts or root.module in each.ancestors() for each in others)
