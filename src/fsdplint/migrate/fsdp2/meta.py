"""Models that are on the meta device where FSDP1 wraps them."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.facts.weights import gets_no_memory, root
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.migrate.step import Context


def may_be_on_meta(context: Context, call: ir.Call) -> bool:
    """Return whether the model of an `FSDP(…)` may have parameters on the meta device."""
    return any(
        shard.call is call and _is_on_meta(trace, shard)
        for trace in context.program.traces
        for shard in trace.of(Shard)
    )


def _is_on_meta(trace: Trace, shard: Shard) -> bool:
    model = root(shard.module)
    emptied = [
        each
        for each in trace.calls("to_empty")
        if each.time < shard.time
        and isinstance(each.receiver, Object)
        and root(each.receiver) is model
    ]
    return gets_no_memory(emptied[-1]) if emptied else model.on_meta is not False
