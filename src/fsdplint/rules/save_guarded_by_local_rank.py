from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.local_writes import NodeWrite, node_writes
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def save_guarded_by_local_rank(program: Program) -> Iterator[Report]:
    for fact in node_writes(program):
        site, guard = fact.write.site, fact.guard
        test = program.text(guard.path, guard.test)
        yield Report(
            program.span(site),
            f"`{test}` is so on each node, and one process of each calls `{fact.write.function}` "
            "for the same file: on storage that the nodes share, the last one wins",
            "written once by each node",
            (
                Evidence(Span(guard.path, guard.test.start, guard.test.end), "the local rank"),
                program.evidence(fact.shard.site, "sharded over all nodes"),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NodeWrite) -> Fix | Declined:
    telling = fact.guard.telling
    if len(telling) != 1:
        return Declined("the test is of several parts")
    return fixes.local_rank.ask_global_rank(
        fixes.code.Code.of(program.tree(fact.guard.path)), telling[0]
    )
