"""Optimizers that code of a library builds of a model which is not sharded yet."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import Object
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import Generation
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    "its result is stepped like an optimizer, which would keep the parameters from before the "
    "model is sharded and train nothing; call it below the sharding by hand"
)


def unknown_optimizers(context: Context) -> Iterator[Found]:
    """Yield each call before `fully_shard` whose result is stepped and clears gradients."""
    found: dict[ir.Node, str] = {}
    for trace in context.program.traces:
        sharded = [each.time for each in trace.of(Shard) if each.generation is Generation.FSDP2]
        for call in trace.calls("step"):
            # A gradient scaler steps what it is given.
            for value in (call.receiver, *call.arguments.values()):
                made = value.offered if isinstance(value, Object) else None
                if made is None or "zero_grad" not in made.uses:
                    continue
                if any(made.time < time < call.time for time in sharded):
                    found[made.site.node] = made.site.path
    for node, path in found.items():
        yield kept(Code.of(context.program.tree(path)), node, _WHY)
