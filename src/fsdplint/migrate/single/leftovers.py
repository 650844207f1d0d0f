"""What keeps a program on one GPU after the migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.knowledge.ddp import DATA_PARALLEL
from fsdplint.migrate.step import Context, Found, Kept


def leftovers(context: Context) -> Iterator[Found]:
    """Yield each use of `DataParallel`, and sharding that no analyzed path reaches."""
    reached = {shard.call for trace in context.program.traces for shard in trace.of(Shard)}
    for code in context.codes("DataParallel", "fully_shard"):
        for node in ir.walk(code.module):
            if not isinstance(node, ir.Call):
                continue
            span, text = code.span(node), f"`{code.short(node)}`"
            if context.name(code, node.func) == DATA_PARALLEL:
                yield Kept(span, text, "it would copy a sharded model to other GPUs; remove it")
            if ir.last_name(node.func) == "fully_shard" and node not in reached:
                reason = "no analyzed path leads here, so the code around it is not adapted"
                yield Kept(span, text, f"{reason}; migrate it by hand")
