from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.copies import Copy, copies
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def deepcopy_of_sharded_model(program: Program) -> Iterator[Report]:
    for fact in copies(program):
        site = fact.call.site
        where = program.where(fact.around.site, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` copies a model that is sharded {where}: FSDP2 "
            "modules cannot be copied",
            "raises",
            (
                program.evidence(fact.around.site, "sharded here"),
                *program.conditions(fact.around.site, site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Copy) -> Fix | Declined:
    ours, theirs = fact.call.site.frames(), fact.first.site.frames()
    apart = len(fact.call.site.calls)
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined("the model is sharded in another function")
    if not fact.call.name.startswith("copy."):
        return Declined("the average is updated with shards, so it has to be sharded alike")
    code = fixes.code.Code.of(program.tree(fact.call.site.path))
    return fixes.copy_first.copy_first(code, fact.call.site.node, theirs[apart][1])
