from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.ties import Tie, ties
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report

# The release that checks for shared parameters in the first forward.
_CHECKS = (2, 12, 0)


def tied_weights_in_different_groups(program: Program) -> Iterator[Report]:
    raises = program.torch.overlaps(lower=_CHECKS)
    harm = "the first forward raises" if raises else "they are two parameters from here on"
    for fact in ties(program):
        site, store = fact.unit.site, fact.store
        inside, outside = (each.path().strip(".") for each in (fact.inside, fact.outside))
        yield Report(
            program.span(site),
            f"`{program.text(site.path, fact.unit.call)}` shards `{inside}` apart from "
            f"`{outside}`, with which it shares its `{store.name}`: {harm}",
            f"takes the {store.name} of both",
            (
                program.evidence(store.site, "shared from here on"),
                program.evidence(fact.around.site, f"takes `{outside}`"),
                *program.conditions(site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Tie) -> Fix | Declined:
    if fact.unit.site.path != fact.around.site.path:
        return Declined("the two modules are sharded in different files")
    if fact.open:
        return Declined(f"a loop may shard `{fact.outside.path().strip('.')}` by itself as well")
    code = fixes.code.Code.of(program.tree(fact.unit.site.path))
    if fact.around.module is not fact.outside:
        return fixes.one_unit.one_unit(
            code, fact.unit.call, fact.inside.path(), fact.outside.path(), None
        )
    return fixes.one_unit.one_unit(
        code, fact.unit.call, fact.inside.path(), fact.outside.path(), fact.around.call
    )
