"""Sharding calls of a program whose analyzed paths reach none of them."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.knowledge.names import FULLY_SHARD
from fsdplint.migrate.step import Context, Found, Kept

SHARD = FULLY_SHARD.rpartition(".")[2]
_REASON = "no analyzed path leads here, so the code around it is not adapted; migrate it by hand"


def unreached(context: Context) -> Iterator[Found]:
    """Yield the sharding calls if none is on a path: the steps know nothing of what they shard.

    Where one is, others may be on branches that the program never takes.
    """
    program = context.program
    traces = (*program.traces, *program.method_traces)
    calls = [
        (code, node)
        for code in context.codes(SHARD)
        for node in code.walk(SHARD)
        if isinstance(node, ir.Call) and context.name(code, node.func) == FULLY_SHARD
    ]
    if any(True for trace in traces for _ in trace.of(Shard)):
        return
    for code, node in calls:
        yield Kept(code.span(node), f"`{code.short(node)}`", _REASON)
