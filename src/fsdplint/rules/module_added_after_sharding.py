from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.additions import Addition, additions
from fsdplint.engine.facts.retied import retied
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence
from fsdplint.rule import Report


def module_added_after_sharding(program: Program) -> Iterator[Report]:
    for fact in additions(program):
        text = program.text(fact.site.path, fact.site.node)
        where = program.where(fact.around.site, fact.site)
        adds = (
            f"`{text}` adds parameters to a model that is sharded {where}: no rank reduces their "
            "gradients, so the ranks train different models"
        )
        resizes = (
            f"`{text}` resizes the embeddings of a model that is sharded {where}: unless they "
            "keep their size, it raises where it copies them"
        )
        yield Report(
            program.span(fact.site),
            resizes if fact.training is None else adds,
            "the old ones are in parts" if fact.training is None else "is in no unit",
            _evidence(program, fact),
            partial(fixes.add_before.before_sharding, program, fact.site, fact.first),
        )
    for tie in retied(program):
        yield Report(
            program.span(tie.site),
            "this ties weights of a sharded model that has run already "
            f"{program.where(tie.before.site, tie.site)}: its next forward unties them",
            "holds until the next forward",
            (
                program.evidence(tie.around.site, "sharded here, with weights of its own"),
                program.evidence(tie.before.site, "from here on the unit knows its parameters"),
                *program.conditions(tie.around.site, tie.site),
            ),
            partial(fixes.add_before.before_sharding, program, tie.site, tie.first),
        )


def _evidence(program: Program, fact: Addition) -> tuple[Evidence, ...]:
    sharded = program.evidence(fact.around.site, "sharded here, without them")
    trains = "trains all parameters of the model"
    return (
        sharded,
        *(() if fact.training is None else (program.evidence(fact.training, trains),)),
        *program.conditions(fact.around.site, fact.site),
    )
