"""Weights tied once a sharded model has run, which its units untie again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Call, Shard, Store, Trace
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.facts.weights import related, root
from fsdplint.engine.layers import library_class
from fsdplint.engine.places import common_frame
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Object, resolved
from fsdplint.knowledge.calls import STATE_HELPERS, Generation
from fsdplint.knowledge.initialisation import keeps_weights
from fsdplint.knowledge.modules import PARAMETER, PARAMETER_LAYERS

# Methods that apply a function to every parameter, after which units take the module's ones
# (torch 2.13, `FSDPModule._apply`), although the values stay the same.
_APPLIES = frozenset(
    {"bfloat16", "cpu", "cuda", "double", "float", "half", "to", "to_empty", "type", "xpu"}
)
_STATE = frozenset({"state_dict", "step", "backward", *STATE_HELPERS})


@dataclass(frozen=True, slots=True)
class Retied:
    """A weight that another module's takes the place of between two forwards.

    Attributes:
        site: where it is done, in the function that runs the forward.
        first: the first call that shards the model or a part of it.
        around: the unit of the weight.
        before: a forward behind which units know their parameters.
    """

    site: Site
    first: Shard
    around: Shard
    before: Call


def retied(program: Program) -> Iterator[Retied]:
    """Ties of layers of one model that are made after its first forward and not before."""
    for trace in program.traces:
        for store in trace.of(Store):
            fact = _retied(program, trace, store)
            if fact is not None and program.together(store.site, fact.around.site):
                yield fact


def _retied(program: Program, trace: Trace, store: Store) -> Retied | None:
    owner, weight = store.owner, resolved(store.value)
    if not isinstance(owner, Object) or not isinstance(weight, Object):
        return None
    if not _ties(owner, store.name, weight) or _tied_before(trace, store, weight):
        return None
    shards = [s for s in trace.of(Shard) if related(s.module, root(owner))]
    around = [s for s in shards if s.module in (owner, *owner.ancestors())]
    if not around or any(s.generation is not Generation.FSDP2 for s in shards):
        return None
    if any(s.time > store.time for s in shards):
        return None
    before = _forward_before(trace, store, owner, around[-1])
    if before is None or not _undone(program, trace, store, owner, before):
        return None
    frame = common_frame(store.site, before.site)
    site = store.site
    if frame is not None:
        depth = [node for _, node in site.frames()].index(frame[1])
        site = Site(frame[0], frame[1], site.calls[:depth], site.guards)
    return Retied(site, shards[0], around[-1], before)


def _ties(owner: Object, name: str, weight: Object) -> bool:
    """Whether a layer gets the parameter of another module of its model."""
    if name != "weight" or library_class(owner) not in PARAMETER_LAYERS:
        return False
    other = weight.parent
    if other is None or other is owner or root(other) is not root(owner) or owner is root(owner):
        return False
    named = weight.step == ".weight" and library_class(other) in PARAMETER_LAYERS
    return named or library_class(weight) == PARAMETER


def _tied_before(trace: Trace, store: Store, weight: Object) -> bool:
    """Whether the layer, or the other one, got the same parameter already."""
    return any(
        resolved(each.value) is weight and each.name == store.name and each.time < store.time
        for each in trace.of(Store)
        if each.owner is store.owner
    )


def _forward_before(trace: Trace, store: Store, owner: Object, unit: Shard) -> Call | None:
    """The last forward that surely ran through ``owner`` as a part of its unit."""
    runs = [
        call
        for call in trace.calls("forward")
        if unit.time < call.time < store.time
        and call.receiver in (owner, *owner.ancestors())
        and not exclude_each_other(call.site, store.site)
    ]
    return runs[-1] if runs else None


def _undone(program: Program, trace: Trace, store: Store, owner: Object, before: Call) -> bool:
    """Whether another forward comes, and nothing before it that has units take what is there."""
    model = root(owner)
    later = [
        call.time
        for call in trace.calls("forward")
        if call.time > store.time and call.receiver in (owner, *owner.ancestors())
    ]
    if not later and not share_loop(program, store.site, before.site):
        return False
    uses = [use for use in trace.uses if store.time < use.time and model in use.objects]
    if later:
        uses = [use for use in uses if use.time < later[0]]
    else:
        uses = [use for use in uses if share_loop(program, store.site, use.site)]
    return not any(_takes(use.name) for use in uses)


def _takes(name: str) -> bool:
    """Whether a call may have units take the parameters that their modules have now."""
    return name in _APPLIES or not (keeps_weights(name) or name in _STATE)
