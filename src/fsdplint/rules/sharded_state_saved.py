"""State dicts of FSDP2 models that are saved without being gathered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.sharding import as_state
from fsdplint.engine.facts.state_files import ShardedWrite, sharded_writes
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Safety, Severity
from fsdplint.fixes.gather_state import gathered_write
from fsdplint.knowledge.calls import REFUSES_DTENSORS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD501",
    summary="the state dict of an FSDP2 model is saved without gathering its shards",
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
            _message(fact, what, as_state(program, fact.shard, site)),
            "crashes on DTensors" if _is_refused(fact) else "saves one rank's shards",
            _evidence(program, fact),
            partial(gathered_write, program, fact),
        )


def _message(fact: ShardedWrite, what: str, sharded: str) -> str:
    function = fact.write.function
    if _is_refused(fact):
        return (
            f"`{function}` crashes: it accepts only plain tensors, and `{what}` holds DTensor "
            f"shards ({sharded})"
        )
    outcome = (
        "the file holds only this rank's shards, and the rest is lost"
        if fact.guards
        else "every rank overwrites the file with its own shards, and the rest is lost"
    )
    return f"`{function}` writes `{what}` without gathering it ({sharded}): {outcome}"


def _is_refused(fact: ShardedWrite) -> bool:
    return fact.write.function in REFUSES_DTENSORS


def _evidence(program: Program, fact: ShardedWrite) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.shard.site, "parameters become DTensor shards here"),
        *(program.evidence(state.source, "returns shards") for state in fact.states),
        *program.conditions(*fact.sites),
    )
