"""Files written with state whose tensors are shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import PlainWrite, Shard
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program
from fsdplint.engine.site import Guard
from fsdplint.engine.values import Object, Origin, StateDict, Taint, contained
from fsdplint.knowledge.words import means_rank


@dataclass(frozen=True, slots=True)
class ShardedWrite:
    """A file written with DTensor shards; ``guards`` are the tests that only some ranks pass."""

    write: PlainWrite
    states: tuple[StateDict, ...]
    shard: Shard
    guards: tuple[Guard, ...]


def sharded_writes(program: Program) -> Iterator[ShardedWrite]:
    """Plain writes of state whose tensors are shards, to a path that is not one per rank."""
    for trace in program.traces:
        for write in trace.of(PlainWrite):
            guards = tuple(guard for guard in write.site.guards if program.is_rank_test(guard))
            if not write.states or _one_per_rank(program, write, bool(guards)):
                continue
            shard = sharding_of(trace, write.states[0].owner)
            if shard is not None and program.together(write.site, shard.site):
                yield ShardedWrite(write, write.states, shard, guards)


def _one_per_rank(program: Program, write: PlainWrite, guarded: bool) -> bool:
    """Whether each rank may write a file of its own, or where to is not known."""
    target = write.target
    if target is None:
        return False
    if any(value.taint & Taint.RANK for value in contained(target)):
        return True
    node = write.site.node
    if isinstance(node, ir.Call) and means_rank(_argument_text(program, write, node)):
        return True
    handed_in = isinstance(target, Object) and target.origin is Origin.PARAMETER
    return handed_in and not guarded


def _argument_text(program: Program, write: PlainWrite, node: ir.Call) -> str:
    return " ".join(program.text(write.site.path, argument) for argument in node.args[1:])
