from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.scalers import LocalScaler, local_scalers
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def grad_scaler_on_fsdp1(program: Program) -> Iterator[Report]:
    for fact in local_scalers(program):
        made, shard = fact.made, fact.shard.site
        yield Report(
            program.span(made),
            f"`{program.text(made.path, made.node)}` looks for overflows in this rank's shards of "
            f"the gradients, since `{program.text(shard.path, fact.shard.call.func)}` wraps the "
            f"model {program.where(shard, made)}: where only some ranks have one, only these skip "
            "the step and lower their scale",
            "another decision on each rank",
            (
                program.evidence(shard, "wrapped by FSDP1 here"),
                program.evidence(fact.step.site, "steps, or does not, by what this rank sees"),
                *program.conditions(made, shard),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalScaler) -> Fix | Declined:
    if program.sometimes_without(fact.made, fact.shard.site):
        return Declined("the model is not always wrapped, and the sharded scaler waits for ranks")
    return fixes.scaler.shard_scaler(
        fixes.code.Code.of(program.tree(fact.made.path)), fact.made.node, fact.name
    )
