"""States of modules that a sharded model became a part of."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Store, Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    "a part of this module is sharded, so that its state holds DTensors; take the state of that "
    "part with `get_model_state_dict` on every rank by hand"
)


def attached(context: Context) -> Iterator[Found]:
    """Yield each state of a plain module that got a sharded one as an attribute."""
    program = context.program
    found = {
        call.site
        for trace in program.traces
        for call in trace.calls("state_dict")
        for store in trace.of(Store)
        if store.time < call.time and store.owner is call.receiver and _is_sharded(trace, store)
    }
    for site in sorted(found, key=lambda each: (each.path, each.node.start)):
        yield kept(Code.of(program.tree(site.path)), site.node, _WHY)


def _is_sharded(trace: Trace, store: Store) -> bool:
    value, owner = store.value, store.owner
    if not isinstance(value, Object) or not isinstance(owner, Object):
        return False
    unit = unit_of(trace, value)
    return unit is not None and unit.time < store.time and unit_of(trace, owner) is None
