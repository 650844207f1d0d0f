"""Files written with state whose tensors are shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.interpreter.events import PlainWrite, Shard, Trace
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import (
    Object,
    Origin,
    StateDict,
    Symbol,
    Taint,
    Value,
    class_names,
    contained,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.checkpoints import MEMORY
from fsdplint.knowledge.names import SGD
from fsdplint.knowledge.words import means_rank


@dataclass(frozen=True, slots=True)
class ShardedWrite:
    """A file written with slices; ``guards`` are the tests that only some ranks pass."""

    trace: Trace
    write: PlainWrite
    states: tuple[StateDict, ...]
    shard: Shard
    guards: tuple[Guard, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        """Where the states are taken and written, and their parameters sharded."""
        return *(state.source for state in self.states), self.write.site, self.shard.site

    @property
    def of_optimizers(self) -> bool:
        """Whether there is no model's state in it."""
        return all(state.optimizer is not None for state in self.states)


def sharded_writes(program: Program) -> Iterator[ShardedWrite]:
    """Plain writes of state whose tensors are shards, to a path that is not one per rank."""
    for trace in program.traces:
        for write in trace.of(PlainWrite):
            guards = tuple(guard for guard in write.site.guards if program.is_rank_test(guard))
            states = write.states
            if all(is_stateless(state.optimizer) for state in states):
                continue
            if one_per_rank(program, write.site, write.target, bool(guards), 1):
                continue
            shard = sharding_of(trace, states[0].owner, states[0].generation)
            sites = (write.site, *(state.source for state in states))
            if shard is not None and all(program.together(site, shard.site) for site in sites):
                yield ShardedWrite(trace, write, states, shard, guards)


def is_stateless(optimizer: Object | None) -> bool:
    """Whether an optimizer surely keeps nothing per parameter: SGD, unless it has momentum."""
    if optimizer is None or not isinstance(optimizer.cls, Symbol):
        return False
    plain = optimizer.cls.name == SGD and len(optimizer.args) < 3
    return plain and "momentum" not in optimizer.keywords


def is_memory(target: Value) -> bool:
    """Whether a file is, or may be, a buffer in the memory of the process."""
    return any(
        isinstance(each, Object) and not MEMORY.isdisjoint(class_names(each.cls))
        for each in contained(target)
    )


def one_per_rank(
    program: Program, site: Site, target: Value | None, guarded: bool, position: int = 0
) -> bool:
    """Whether each rank may have a file of its own, or which file it is is not known.

    Args:
        position: of the first argument that says which file.
    """
    if target is None:
        return False
    if is_memory(target):
        return True
    if any(value.taint & Taint.RANK for value in contained(target)):
        return True
    node = site.node
    arguments = node.args[position:] if isinstance(node, ir.Call) else ()
    if means_rank(" ".join(program.text(site.path, argument) for argument in arguments)):
        return True
    handed_in = isinstance(target, Object) and target.origin is Origin.PARAMETER
    return handed_in and not guarded
