"""Gradients that a program clears while the parameters of a unit are gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.facts.sharding import is_gathered, sharding_of
from fsdplint.engine.interpreter.events import Call, Shard, Store, Trace
from fsdplint.engine.interpreter.values import Const, Object, Parameters, followed
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation


@dataclass(frozen=True, slots=True)
class GatheredClear:
    """A place that clears the gradients of gathered parameters, and not those of their shards.

    Attributes:
        event: `zero_grad()`, or None assigned to `grad` in a loop over parameters.
        module: whose gradients are meant.
        shard: what made its unit.
        time: when the parameters were taken.
    """

    trace: Trace
    event: Call | Store
    module: Object
    shard: Shard
    time: int


def gathered_clears(
    program: Program, generation: Generation = Generation.FSDP2
) -> Iterator[GatheredClear]:
    """Yield the places that clear gradients of modules whose parameters are gathered."""
    for trace in program.traces:
        for event, module, time in clears(trace):
            shard = None if module is None else sharding_of(trace, module, generation, time)
            if module is not None and shard is not None and is_gathered(trace, shard, time):
                yield GatheredClear(trace, event, module, shard, time)


def clears(trace: Trace) -> Iterator[tuple[Call | Store, Object | None, int]]:
    """Yield what clears gradients, with the module and the time that its parameters are of.

    There is no module where an optimizer has the parameters, or where they are not known.
    """
    for call in trace.calls("zero_grad"):
        receiver = followed(call.receiver) if call.receiver is not None else None
        known = isinstance(receiver, Object) and not receiver.captures
        yield call, receiver if known else None, call.time  # type: ignore[misc]  # an Object
    for store in trace.of(Store):
        value = followed(store.value)
        if store.name == "grad" and isinstance(value, Const) and value.value is None:
            owner = store.owner
            if isinstance(owner, Parameters):
                yield store, owner.module, store.time if owner.lazy else owner.time
            else:
                yield store, None, store.time


def optimizer_of(clear: GatheredClear) -> str | None:
    """Return the name of the only optimizer of the module's parameters that the function has."""
    event = clear.event
    steps = clear.trace.calls("step") if isinstance(event, Store) else [event]
    found = {
        id(item): name
        for call in steps
        if call.site.frames()[:-1] == event.site.frames()[:-1]
        for name, item in call.names.items()
        if any(each.module is clear.module for each in item.captures)
    }
    return found.popitem()[1] if len(found) == 1 else None
