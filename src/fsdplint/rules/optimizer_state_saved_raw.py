"""Optimizer state that is saved without being gathered, or loaded without being sharded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.sharding import as_state
from fsdplint.engine.facts.state_files import PlainLoad, ShardedWrite, plain_loads, sharded_writes
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Safety, Severity
from fsdplint.fixes.gather_state import gathered_write
from fsdplint.fixes.load_state import whole_load
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD502",
    summary="sharded optimizer state is saved without gathering it, or loaded without sharding it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="saves",
)


def reports(program: Program) -> Iterator[Report]:
    for write in sharded_writes(program):
        if write.of_optimizers:
            yield _of_write(program, write)
    for load in plain_loads(program):
        if load.optimizer is not None:
            yield _of_load(program, load)


def _of_write(program: Program, fact: ShardedWrite) -> Report:
    site, state = fact.write.site, fact.states[0]
    what = program.text(state.source.path, state.source.node)
    sharded = as_state(program, fact.shard, site)
    outcome = (
        "the file holds only this rank's shards, and the rest is lost"
        if fact.guards
        else "every rank overwrites the file with its own shards, and the rest is lost"
    )
    return Report(
        program.span(site),
        f"`{fact.write.function}` writes `{what}` without gathering it (model {sharded}): "
        f"{outcome}",
        "saves one rank's shards",
        (
            program.evidence(fact.shard.site, "parameters are sharded here"),
            *(program.evidence(state.source, "returns shards") for state in fact.states),
            *program.conditions(*fact.sites),
        ),
        partial(gathered_write, program, fact),
    )


def _of_load(program: Program, fact: PlainLoad) -> Report:
    site, read = fact.call.site, fact.file.site
    assert read is not None  # a file is only known by the call that read it
    return Report(
        program.span(site),
        "every rank loads the same optimizer state from "
        f"`{program.text(read.path, read.node)}`; each needs its own shard, so training resumes "
        "from wrong state or crashes",
        "not this rank's shard",
        (
            program.evidence(fact.shard.site, "parameters are sharded here"),
            program.evidence(read, "every rank reads the same file"),
            *_handed_on(program, read, site),
            *program.conditions(site, fact.shard.site),
        ),
        partial(whole_load, program, fact),
    )


def _handed_on(program: Program, read: Site, load: Site) -> Iterator[Evidence]:
    """Yield the call that passes the state to a load in another function."""
    frame = common_frame(read, load)
    if frame is not None and frame[2] is not load.node:
        yield program.evidence(Site(frame[0], frame[2]), "passes the state to the load")
