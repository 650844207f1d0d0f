"""Files that one process of each node writes under the same name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.devices import is_for_one_node
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.origins import origins
from fsdplint.engine.facts.state_files import is_memory
from fsdplint.engine.interpreter.events import PlainWrite, Shard
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard
from fsdplint.engine.interpreter.values import Const, Taint, contained, taint_of
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.local_rank import ask_global_rank
from fsdplint.knowledge.launch import TELL_LOCAL
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD505",
    summary="a save is guarded by the local rank, so every node writes the file",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

# Words in a path that may be private to each node.
_OWN_PLACE = re.compile(r"tmp|temp|scratch|local|node|host|shm|rank|cache", re.IGNORECASE)
# Words of an option that requests a file on each node.
_FOR_EACH = re.compile(r"(each|every)_?node", re.IGNORECASE)


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
    """Yield the writes that are guarded by tests of the local rank only."""
    for trace in program.traces:
        shard = next(iter(trace.of(Shard)), None)
        if shard is None:  # an accelerator may do it
            continue
        for write in trace.of(PlainWrite):
            tests = [guard for guard in write.site.guards if guard.ranks != EVERY_RANK]
            if not tests or any(not guard.rank_sources for guard in tests):
                continue
            local = all(guard.rank_sources <= TELL_LOCAL for guard in tests)
            if not local or _is_meant(program, write) or _has_own_place(program, write):
                continue
            if not is_for_one_node(program, trace, write.site):
                yield NodeWrite(write, tests[-1], shard)


def _is_meant(program: Program, write: PlainWrite) -> bool:
    """Whether an option requests the write on each node."""
    return any(_FOR_EACH.search(program.text(each.path, each.test)) for each in write.site.guards)


def _has_own_place(program: Program, write: PlainWrite) -> bool:
    """Whether each node may write a different file, by its folder or by its name."""
    written = argument(write.site.node, 1, "f")
    if written is None or write.target is None or is_memory(write.target):
        return True
    differs = taint_of(*contained(write.target)) & (Taint.RANK | Taint.OWN)
    behind = origins(program, write.site, written.value)
    words = " ".join(program.text(path, node) for path, node in behind)
    if isinstance(write.target, Const):
        words += str(write.target.value)
    return bool(differs) or _OWN_PLACE.search(words) is not None


def reports(program: Program) -> Iterator[Report]:
    for fact in node_writes(program):
        site, guard = fact.write.site, fact.guard
        test = program.text(guard.path, guard.test)
        yield Report(
            program.span(site),
            f"`{test}` is true on every node, so one process per node calls "
            f"`{fact.write.function}` for the same file: on shared storage they overwrite each "
            "other",
            "runs once on each node",
            (
                Evidence(
                    Span(guard.path, guard.test.start, guard.test.end), "tests only the local rank"
                ),
                program.evidence(fact.shard.site, "sharded across all nodes"),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NodeWrite) -> Fix | Declined:
    telling = fact.guard.rank_tests
    if len(telling) != 1:
        return Declined(
            "the test checks the rank in several parts; use `dist.get_rank() == 0` by hand"
        )
    return ask_global_rank(Code.of(program.tree(fact.guard.path)), telling[0])
