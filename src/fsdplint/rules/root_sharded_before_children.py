from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.root_first import RootFirst, roots_first
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def root_sharded_before_children(program: Program) -> Iterator[Report]:
    for fact in roots_first(program):
        call = program.text(fact.root.site.path, fact.root.call)
        if fact.loop is not None:
            view = program.text(fact.root.site.path, fact.loop.iterable)
            message = f"`{view}` begins with the model, which `{call}` shards before its parts"
        else:
            where = program.where(fact.part.site, fact.root.site)
            message = f"`{call}` takes the parameters of a part that is sharded {where}, after it"
        yield Report(
            program.span(fact.root.site),
            f"{message}: a part cannot be sharded once its parameters are",
            "is sharded first",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: RootFirst) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.part.site, "this is a part of it"),
        *program.conditions(fact.root.site, fact.part.site),
    )


def _fix(program: Program, fact: RootFirst) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.root.site.path))
    if fact.loop is not None:
        return fixes.root_last.backwards(code, fact.root.call, fact.loop)
    ours, theirs = fact.root.site.frames(), fact.last.site.frames()
    apart = len(ours) - 1
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined("the parts are sharded in another function")
    return fixes.root_last.root_last(code, fact.root.call, theirs[apart][1])
