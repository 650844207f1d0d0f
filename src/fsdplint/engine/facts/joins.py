"""What is handed to torch's ``Join``, which asks each object for a ``join_hook``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard
from fsdplint.engine.program import Program
from fsdplint.engine.values import Object, Sequence, resolved
from fsdplint.engine.written import argument
from fsdplint.knowledge.launch import JOINS


@dataclass(frozen=True, slots=True)
class HooklessJoin:
    """A ``Join`` of a sharded module.

    Attributes:
        node: the module as it is written in the list, or the list.
        shard: what sharded it; None where nothing at all is joined.
    """

    call: Call
    node: ir.Node
    shard: Shard | None


def hookless_joins(program: Program) -> Iterator[HooklessJoin]:
    """Calls of ``Join`` that raise, for what they are given."""
    for trace in program.traces:
        calls = trace.calls(*JOINS)
        shards = {shard.module: shard for shard in trace.of(Shard)} if calls else {}
        for call in calls:
            written = argument(call.site.node, 0, "joinables")
            given = call.argument(0, "joinables")
            if not isinstance(given, Sequence) or written is None:
                continue
            if not given.items and not given.rest:
                yield HooklessJoin(call, written.value, None)
            for index, item in enumerate(given.items):
                module = resolved(item)
                shard = shards.get(module) if isinstance(module, Object) else None
                if shard is not None and shard.time < call.time:
                    yield HooklessJoin(call, _element(written.value, index), shard)


def _element(written: ir.Node, index: int) -> ir.Node:
    if isinstance(written, ir.Collection) and index < len(written.elements):
        return written.elements[index]
    return written
