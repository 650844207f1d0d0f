"""Files that one process of each node writes, all under one name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import PlainWrite, Shard
from fsdplint.engine.facts.devices import is_for_one_node
from fsdplint.engine.facts.origins import origins
from fsdplint.engine.facts.writes import is_memory
from fsdplint.engine.program import Program
from fsdplint.engine.site import EVERY_RANK, Guard
from fsdplint.engine.values import Const, Taint, contained, taint_of
from fsdplint.engine.written import argument
from fsdplint.knowledge.launch import TELL_LOCAL

# Words of a place that each node may have for itself.
_OWN_PLACE = re.compile(r"tmp|temp|scratch|local|node|host|shm|rank|cache", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """A write by the first process of each node.

    Attributes:
        guard: the test of the local rank.
    """

    write: PlainWrite
    guard: Guard
    shard: Shard


def node_writes(program: Program) -> Iterator[NodeWrite]:
    """Writes that only a test of the local rank keeps the other ranks from."""
    for trace in program.traces:
        shard = next(iter(trace.of(Shard)), None)
        if shard is None:  # an accelerator may do it
            continue
        for write in trace.of(PlainWrite):
            tests = [guard for guard in write.site.guards if guard.ranks != EVERY_RANK]
            if not tests or any(not guard.told_by for guard in tests):
                continue
            local = all(guard.told_by <= TELL_LOCAL for guard in tests)
            if not local or _has_own_place(program, write):
                continue
            if not is_for_one_node(program, trace, write.site):
                yield NodeWrite(write, tests[-1], shard)


def _has_own_place(program: Program, write: PlainWrite) -> bool:
    """Whether each node may write another file: in a place or under a name of its own."""
    written = argument(write.site.node, 1, "f")
    if written is None or write.target is None or is_memory(write.target):
        return True
    differs = taint_of(*contained(write.target)) & (Taint.RANK | Taint.OWN)
    words = " ".join(origins(program, write.site, written.value))
    if isinstance(write.target, Const):
        words += str(write.target.value)
    return bool(differs) or _OWN_PLACE.search(words) is not None
