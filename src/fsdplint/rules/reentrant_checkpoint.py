from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.reentrant import reentrant_units
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.rule import Report


def reentrant_checkpoint(program: Program) -> Iterator[Report]:
    for fact in reentrant_units(program):
        call, shard = fact.call, fact.shard.site
        place = Site(call.path, fact.argument)
        yield Report(
            program.span(place),
            f"`{program.text(call.path, call.node)}` runs a unit that "
            f"`{program.text(shard.path, fact.shard.call.func)}` makes {program.where(shard, call)}"
            ": the reentrant way gathers its parameters a third time in every step",
            "one all-gather more per unit and step",
            (
                program.evidence(shard, "the policy makes the checkpointed modules units"),
                *program.conditions(shard),
            ),
            partial(
                fixes.not_reentrant.not_reentrant,
                fixes.code.Code.of(program.tree(call.path)),
                fact.argument,
            ),
        )
