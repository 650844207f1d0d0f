"""Modules that share a parameter and are in different units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Shard, Store, Trace
from fsdplint.engine.facts.enumeration import is_known_one
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.layers import surely_in
from fsdplint.engine.program import Program
from fsdplint.engine.values import Object, class_names, resolved
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import PARAMETER_LAYERS


@dataclass(frozen=True, slots=True)
class Tie:
    """``store`` gives one module the parameter of another, which is in another unit.

    Attributes:
        unit: the call that makes the smaller unit.
        inside: the one of the two modules that it takes.
        outside: the other one.
        around: the call that makes the unit of ``outside``.
    """

    store: Store
    unit: Shard
    inside: Object
    outside: Object
    around: Shard


def ties(program: Program) -> Iterator[Tie]:
    """Parameters that two modules share and two FSDP2 units would manage."""
    for trace in program.traces:
        for store in trace.of(Store) if trace.of(Shard) else ():
            found = _tie(trace, store)
            if found is not None and _always(program, found):
                yield found


def _tie(trace: Trace, store: Store) -> Tie | None:
    owner, value = store.owner, resolved(store.value)
    source = value.parent if isinstance(value, Object) else None
    if not isinstance(owner, Object) or source is None or source is owner:
        return None
    known = class_names(source.cls) | class_names(owner.cls)
    if value.step != f".{store.name}" or not known & PARAMETER_LAYERS:  # type: ignore[union-attr]  # an Object, since it has a parent
        return None
    ours, theirs = _unit(trace, owner), _unit(trace, source)
    if ours is None or theirs is None or _same_unit(ours, theirs):
        return None
    if store.time > min(ours.time, theirs.time):
        return None
    if ours.module in source.ancestors():
        return Tie(store, theirs, source, owner, ours)
    if theirs.module in owner.ancestors() or ours.time > theirs.time:
        return Tie(store, ours, owner, source, theirs)
    return Tie(store, theirs, source, owner, ours)


def _unit(trace: Trace, module: Object) -> Shard | None:
    """The call that makes the unit ``module`` is in, None where it is not known."""
    chain = [module, *module.ancestors()]
    shards = trace.of(Shard)
    open_ones = [s for s in shards if surely_in(s.module) is not s.module]
    if any(surely_in(shard.module) in chain for shard in open_ones):
        return None
    unit = next((s for each in chain for s in shards if s.module is each), None)
    return unit if unit is not None and unit.generation is Generation.FSDP2 else None


def _same_unit(one: Shard, other: Shard) -> bool:
    together = one.listed and one.call is other.call
    return together or one.module is other.module


def _always(program: Program, tie: Tie) -> bool:
    """Whether the modules share the parameter wherever they are sharded apart."""
    if not (is_known_one(program, tie.unit) and is_known_one(program, tie.around)):
        return False
    sites = (tie.unit.site, tie.around.site)
    guards = {(g.key, g.taken) for g in tie.store.site.guards}
    if any(guards - {(g.key, g.taken) for g in site.guards} for site in sites):
        return False
    return not exclude_each_other(*sites) and program.together(*sites)
