"""Files that one process of each node writes, all under one name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import PlainWrite, Shard
from fsdplint.engine.facts.devices import is_for_one_node
from fsdplint.engine.program import Program
from fsdplint.engine.site import EVERY_RANK, Guard
from fsdplint.engine.values import Const, Taint, taint_of
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
    written = argument(write.site.node, 1, "f")
    text = "" if written is None else program.text(write.site.path, written.value)
    if isinstance(write.target, Const):
        text += str(write.target.value)
    differs = bool(taint_of(write.target) & Taint.RANK)
    return written is None or differs or _OWN_PLACE.search(text) is not None
