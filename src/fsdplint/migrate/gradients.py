"""Gradients that a model clears between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import is_gathered, unit_of
from fsdplint.engine.interpreter.events import Call, Shard
from fsdplint.engine.interpreter.values import Object
from fsdplint.fixes.code import Code
from fsdplint.fixes.gather_state import receiver
from fsdplint.migrate.step import Change, Context, Found, kept

_WHY = "between forward and backward, the root's own gradients are out of the model's reach"


def cleared(context: Context) -> Iterator[Found]:
    """Yield a change for each `zero_grad()` of a root whose parameters are gathered.

    The model has the gathered parameters then; the gradients are those of the sharded ones, which
    the optimizer has.
    """
    seen: dict[ir.Node, Call] = {}
    for trace in context.program.traces:
        for call in trace.calls("zero_grad"):
            module = call.receiver
            if isinstance(module, Object) and not module.captures:
                shard = unit_of(trace, module)
                if isinstance(shard, Shard) and is_gathered(trace, shard, call.time):
                    seen[call.site.node] = call
    for node, call in seen.items():
        code = Code.of(context.program.tree(call.site.path))
        model, optimizer = receiver(node), _optimizer(call)
        if model is None or call.site.path not in context.files:
            continue
        if optimizer is None:
            yield kept(code, node, f"{_WHY}; call `zero_grad` on the optimizer by hand")
        else:
            what = f"clear the gradients of `{optimizer}`: {_WHY}"
            yield Change(code.span(node), what, (code.edit(model.start, model.end, optimizer),))


def _optimizer(call: Call) -> str | None:
    """Return the name of the only optimizer of the model's parameters, if the code has one."""
    found = {
        id(item): name
        for name, item in call.names.items()
        if any(each.module is call.receiver for each in item.captures)
    }
    return found.popitem()[1] if len(found) == 1 else None
