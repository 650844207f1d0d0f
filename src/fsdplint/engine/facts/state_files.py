"""Files that are written with shards, and files loaded into what is sharded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, PlainWrite, Shard, Sharding, Trace
from fsdplint.engine.interpreter.modules import cuts, is_module
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    StateDict,
    Symbol,
    Taint,
    Value,
    class_names,
    contained,
    read_from,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import PLACEMENT, Generation
from fsdplint.knowledge.checkpoints import MEMORY
from fsdplint.knowledge.names import SGD
from fsdplint.knowledge.suspicious_words import means_rank


@dataclass(frozen=True, slots=True)
class ShardedWrite:
    """A file written with slices; ``guards`` are the tests that only some ranks pass."""

    trace: Trace
    write: PlainWrite
    states: tuple[StateDict, ...]
    shard: Sharding
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
            shard = unit_of(trace, states[0].owner, states[0].generation)
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
    arguments = tuple(each for each in arguments if each.keyword not in PLACEMENT)
    if means_rank(" ".join(program.text(site.path, argument) for argument in arguments)):
        return True
    handed_in = isinstance(target, Object) and target.origin is Origin.PARAMETER
    return handed_in and not guarded


# Loads


@dataclass(frozen=True, slots=True)
class PlainLoad:
    """``load_state_dict`` of what a file holds; ``guards`` are the tests that some ranks pass.

    Attributes:
        module: what is loaded into, or what the optimizer trains that is loaded into.
        optimizer: None where it is a model.
        file: what was read.
    """

    trace: Trace
    call: Call
    module: Object
    optimizer: Object | None
    file: Object
    shard: Sharding
    guards: tuple[Guard, ...]


def plain_loads(program: Program) -> Iterator[PlainLoad]:
    """Loads of one file by all ranks, or by some, into a sharded model or its optimizer."""
    for trace in program.traces:
        for call in trace.calls("load_state_dict"):
            fact = _load(program, trace, call)
            if fact is not None and program.together(call.site, fact.shard.site):
                yield fact


def _load(program: Program, trace: Trace, call: Call) -> PlainLoad | None:
    """The fact of one load, if its file is the same for all ranks and what it fills is sharded."""
    receiver, given = call.receiver, call.arguments.get(0, "state_dict")
    file = None if given is None else _file(given)
    if not isinstance(receiver, Object) or file is None or file.site is None:
        return None
    guards = tuple(guard for guard in call.site.guards if program.is_rank_test(guard))
    guarded = any(program.is_rank_test(guard) for guard in file.site.guards)
    if one_per_rank(program, file.site, file.file, guarded or bool(guards)):
        return None
    optimizer = receiver if receiver.captures else None
    if is_stateless(optimizer):
        return None
    for capture in receiver.captures:
        shard = _cut(trace, capture, call.time) or _sharded(trace, capture.module, call.time)
        if shard is not None:
            return PlainLoad(trace, call, capture.module, optimizer, file, shard, guards)
    shard = None if receiver.captures else _sharded(trace, receiver, call.time)
    return None if shard is None else PlainLoad(trace, call, receiver, None, file, shard, guards)


def _file(given: Value, depth: int = 0) -> Object | None:
    """What was read that ``given`` is, if it is that whichever way the program goes."""
    if isinstance(given, Mapping) and given.rest and not given.items and depth < 4:
        found = [_file(item, depth + 1) for item in given.rest]
    elif isinstance(given, Choice):
        options = [option for option in given.options if not _is_nothing(option)]
        found = [_file(option, depth + 1) for option in options]
    else:
        return read_from(given)
    return found[0] if found and all(found) else None


def _is_nothing(value: Value) -> bool:
    empty = isinstance(value, Mapping) and not value.items and not value.rest
    return empty or isinstance(value, Const)


def _cut(trace: Trace, captured: Parameters, time: int) -> Shard | None:
    """The last call before ``time`` by which FSDP1 put slices in the place of parameters."""
    shards = [s for s in trace.of(Shard) if s.cuts_flat and s.time < time and cuts(s, captured)]
    return shards[-1] if shards else None


def _sharded(trace: Trace, module: Object, time: int) -> Sharding | None:
    """What last put FSDP2's slices in the place of the parameters before ``time``, or says so.

    FSDP1's models cut what they load by themselves.
    """
    around = {module, *module.ancestors()}
    found = None
    for shard in trace.units():
        inside = module in shard.module.ancestors() and is_module(module)
        counts = shard.generation is Generation.FSDP2 and (inside or shard.module in around)
        found = shard if counts and shard.time < time else found
    return found
