"""Sharded models that are saved whole, with their code, instead of their states."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import PlainWrite
from fsdplint.engine.interpreter.values import Object, contained
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    "it writes the model itself, of which each rank has its shards; save its state dict and build "
    "the model before loading by hand"
)


def pickled(context: Context) -> Iterator[Found]:
    """Yield each write of a model that is sharded by then."""
    program = context.program
    seen: dict[ir.Node, str] = {}
    for trace in program.traces:
        for write in trace.of(PlainWrite):
            for item in contained(write.value):
                unit = unit_of(trace, item) if isinstance(item, Object) else None
                if unit is not None and unit.time < write.time:
                    seen[write.site.node] = write.site.path
    for node, path in seen.items():
        yield kept(Code.of(program.tree(path)), node, _WHY)
