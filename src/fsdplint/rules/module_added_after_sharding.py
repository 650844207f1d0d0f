from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.additions import Addition, additions
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.add_before import add_before
from fsdplint.fixes.code import Code
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report, rule


@rule(
    "FSD203",
    summary="parameters are added to a model that is sharded already",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="coverage",
)
def module_added_after_sharding(program: Program) -> Iterator[Report]:
    for fact in additions(program):
        text = program.text(fact.site.path, fact.site.node)
        where = program.where(fact.around.site, fact.site)
        yield Report(
            program.span(fact.site),
            f"`{text}` adds parameters to a model that is sharded {where}: no rank reduces their "
            "gradients, so the ranks train different models",
            "is in no unit",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: Addition) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.around.site, "sharded here, without them"),
        program.evidence(fact.training, "trains all parameters of the model"),
        *program.conditions(fact.around.site, fact.site),
    )


def _fix(program: Program, fact: Addition) -> Fix | Declined:
    ours, theirs = fact.site.frames(), fact.first.site.frames()
    apart = len(fact.site.calls)
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined("the model is sharded in another function")
    return add_before(Code.of(program.tree(fact.site.path)), fact.site.node, theirs[apart][1])
