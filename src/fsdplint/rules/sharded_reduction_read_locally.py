from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.reads import LocalRead, local_reads
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def sharded_reduction_read_locally(program: Program) -> Iterator[Report]:
    for fact in local_reads(program):
        site, shard = fact.read.site, fact.shard
        what = program.text(fact.reduced.path, fact.reduced.node)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` reads this rank's part of `{what}`, a "
            f"reduction of what `{program.text(shard.site.path, shard.call.func)}` shards "
            f"{program.where(shard.site, site)}",
            "another number on each rank",
            (
                program.evidence(fact.reduced, "reduced on each rank for itself"),
                program.evidence(shard.site, "the tensors become DTensor shards"),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalRead) -> Fix | Declined:
    site = fact.read.site
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined("only some ranks come here, and `full_tensor` waits for all")
    if (fact.reduced.path, fact.reduced.calls) != (site.path, site.calls):
        return Declined("the number is reduced in one function and read in another")
    if program.sometimes_without(site, fact.shard.site):
        return Declined("the model is not always sharded, and a plain tensor has no `full_tensor`")
    return fixes.full_tensor.combine(fixes.code.Code.of(program.tree(site.path)), site.node)
