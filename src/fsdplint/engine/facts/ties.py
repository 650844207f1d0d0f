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
        around: the call that makes the unit of ``outside``, as far as it is known.
        open: some loop may shard ``outside``, or a part of the model around it, as well.
    """

    store: Store
    unit: Shard
    inside: Object
    outside: Object
    around: Shard
    open: bool


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
    open_ones = _is_open(trace, owner, ours), _is_open(trace, source, theirs)
    alone = _is_alone(owner, ours) or _is_alone(source, theirs)
    if any(open_ones) and not alone:
        return None
    if ours.module in source.ancestors():
        return Tie(store, theirs, source, owner, ours, open_ones[0])
    if theirs.module in owner.ancestors() or ours.time > theirs.time:
        return Tie(store, ours, owner, source, theirs, open_ones[1])
    return Tie(store, theirs, source, owner, ours, open_ones[0])


def _unit(trace: Trace, module: Object) -> Shard | None:
    """The nearest call that shards ``module`` or what is around it, if that is FSDP2."""
    shards = trace.of(Shard)
    chain = (module, *module.ancestors())
    unit = next((s for each in chain for s in shards if s.module is each), None)
    return unit if unit is not None and unit.generation is Generation.FSDP2 else None


def _is_open(trace: Trace, module: Object, unit: Shard) -> bool:
    """Whether a nearer unit may hold ``module``, by a call that shards some part or other."""
    chain = (module, *module.ancestors())
    vague = (s.module for s in trace.of(Shard) if surely_in(s.module) is not s.module)
    return unit.module is not module and any(surely_in(each) in chain for each in vague)


def _is_alone(module: Object, unit: Shard) -> bool:
    """Whether a module is a unit of its own, so that no other module is in it."""
    return unit.module is module and not unit.listed


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
