from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.writes import ShardedWrite, sharded_writes
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence
from fsdplint.knowledge.calls import REFUSES_DTENSORS
from fsdplint.rule import Report


def sharded_state_saved(program: Program) -> Iterator[Report]:
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
            partial(fixes.gathered_write.gathered_write, program, fact),
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
