"""Modules, parameters and adapters that a model gets after it is sharded.

They count if an optimizer trains them and nothing shards them later. Resizing sharded embeddings
raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.coverage import is_frozen, is_replicated, is_synchronized
from fsdplint.engine.facts.layers import surely_in, with_parameters
from fsdplint.engine.facts.sharding import as_state, unfollowed_sharding
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Sharding, Store, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Origin, class_names, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Safety, Severity
from fsdplint.fixes.move import before_sharding
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import ADDS_ADAPTERS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD203",
    summary="parameters are added to a model that is already sharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="coverage",
)


@dataclass(frozen=True, slots=True)
class Addition:
    """Parameters added to a model after its sharding.

    Attributes:
        first: the first call that shards the model or a part of it, or code that declares it so.
        around: the last one before the addition that shards the module they are added to.
        training: None if the call that adds them raises.
    """

    site: Site
    first: Sharding
    around: Sharding
    training: Site | None


def additions(program: Program) -> Iterator[Addition]:
    """Yield modules, parameters and adapters that are added after sharding and trained."""
    for trace in program.traces:
        first = min((unit.time for unit in trace.units()), default=0)
        for event in trace.events if first else ():
            found = None
            if event.time < first:
                continue
            if isinstance(event, Store):
                found = _stored(program, trace, event)
            elif isinstance(event, Call) and event.name in ADDS_ADAPTERS:
                found = _adapted(trace, event)
            elif isinstance(event, Call) and event.name == "resize_token_embeddings":
                found = _resized(trace, event)
            if found is not None and program.together(event.site, found.around.site):
                yield found


def _stored(program: Program, trace: Trace, store: Store) -> Addition | None:
    owner, added = store.owner, followed(store.value)
    if not isinstance(owner, Object) or not isinstance(added, Object):
        return None
    if added.origin is not Origin.ALLOCATED or added.parent is not owner:
        return None
    if any(each.value is store.value and each.time < store.time for each in trace.of(Store)):
        return None  # it was a part of something already
    units = {surely_in(shard.module) for shard in trace.of(Shard) if shard.time < store.time}
    new = list(with_parameters(added, units))
    if not new or any(is_frozen(trace, part) or is_replicated(trace, part) for part in new):
        return None
    if is_synchronized(program, trace):
        return None
    return _after(program, trace, store, owner, added)


def _adapted(trace: Trace, call: Call) -> Addition | None:
    model = call.argument(0, "model")
    shards = [s for s in trace.units() if s.generation is Generation.FSDP2]
    if not isinstance(model, Object) or any(s.time > call.time for s in shards):
        return None
    around = [s for s in shards if s.module is model]
    builds = [build for build in trace.of(BuildOptimizer) if build.time > call.time]
    if not around or not builds:
        return None
    return Addition(call.site, shards[0], around[-1], builds[0].site)


def _resized(trace: Trace, call: Call) -> Addition | None:
    """Return the resizing of sharded Hugging Face embeddings, which cannot be copied."""
    model = call.receiver
    if not isinstance(model, Object) or _keeps_size(call) or model.escaped is not None:
        return None
    if not any(name.startswith("transformers.") for name in class_names(model.cls)):
        return None
    whole = (model, *model.ancestors())
    shards = [s for s in trace.of(Shard) if s.module in whole or whole[-1] in s.module.ancestors()]
    around = [s for s in shards if s.module in whole]
    if any(s.generation is not Generation.FSDP2 or s.time > call.time for s in shards):
        return None
    return Addition(call.site, shards[0], around[-1], None) if around else None


def _keeps_size(call: Call) -> bool:
    """True if a call keeps the size of the embeddings, or may keep it."""
    size = call.argument(0, "new_num_tokens")
    if size is None or call.arguments.open or (isinstance(size, Const) and size.value is None):
        return True
    return isinstance(size, Object) and size.step in (".vocab_size", ".num_embeddings")


def _after(
    program: Program, trace: Trace, store: Store, owner: Object, added: Object
) -> Addition | None:
    """Return the addition if its owner is sharded before it and nothing shards it later."""
    whole = (owner, *owner.ancestors())
    shards = [s for s in trace.of(Shard) if s.module in whole or whole[-1] in s.module.ancestors()]
    around = [s for s in shards if s.module in whole and s.time < store.time]
    if not around or any(s.generation is not Generation.FSDP2 for s in shards):
        return None
    if any(s.time > store.time for s in shards) or unfollowed_sharding(program, store.site):
        return None
    if any(e.time > store.time and {added, *whole} & e.objects for e in trace.escapes):
        return None
    for build in trace.of(BuildOptimizer):
        given = build.optimizer.captures
        trained = [c for c in given if c.module in (added, *whole) and not c.filtered]
        if trained and build.time > store.time:
            return Addition(store.site, shards[0], around[-1], build.site)
    return None


def reports(program: Program) -> Iterator[Report]:
    for fact in additions(program):
        text = program.text(fact.site.path, fact.site.node)
        known = as_state(program, fact.around, fact.site)
        adds = (
            f"`{text}` adds parameters to a model that is {known}: their gradients are never "
            "reduced, so each rank trains different weights"
        )
        resizes = (
            f"`{text}` resizes the embeddings of a model that is {known}: it crashes as it "
            "copies the old ones, unless the size stays the same"
        )
        is_resized = fact.training is None
        yield Report(
            program.span(fact.site),
            resizes if is_resized else adds,
            "the old embeddings are sharded" if is_resized else "belongs to no FSDP unit",
            _evidence(program, fact),
            partial(before_sharding, program, fact.site, fact.first),
        )


def _evidence(program: Program, fact: Addition) -> tuple[Evidence, ...]:
    sharded = program.evidence(fact.around.site, "sharded here, without these parameters")
    trains = "trains all parameters of the model"
    return (
        sharded,
        *(() if fact.training is None else (program.evidence(fact.training, trains),)),
        *program.conditions(fact.around.site, fact.site),
    )
