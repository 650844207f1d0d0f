"""A state dict of DTensor shards is written as if it were the model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.state_files import ShardedWrite, sharded_writes
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Safety, Severity
from fsdplint.fixes.gather_state import gathered_write
from fsdplint.knowledge.calls import REFUSES_DTENSORS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD501",
    summary="a state dict of DTensor shards is written as if it were the model",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="saves",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in sharded_writes(program):
        if fact.of_optimizers:
            continue
        site, state = fact.write.site, fact.states[0]
        what = program.text(state.source.path, state.source.node)
        yield Report(
            program.span(site),
            f"`{fact.write.function}` writes `{what}`, whose tensors are DTensor shards: "
            f"{_outcome(fact)}",
            "not the whole model",
            _evidence(program, fact),
            partial(gathered_write, program, fact),
        )


def _outcome(fact: ShardedWrite) -> str:
    if fact.write.function in REFUSES_DTENSORS:
        return "it stops at the first of them"
    whose = "this rank's slice" if fact.guards else "each rank's own slice"
    return f"the file holds {whose} of the model"


def _evidence(program: Program, fact: ShardedWrite) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.shard.site, "the parameters become DTensor shards"),
        *(program.evidence(state.source, "sharded state") for state in fact.states),
        *program.conditions(*fact.sites),
    )
