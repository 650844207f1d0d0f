"""A sharded model's optimizer state is written or loaded as one file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.state_files import PlainLoad, ShardedWrite, plain_loads, sharded_writes
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Safety, Severity
from fsdplint.fixes.gather_state import gathered_write
from fsdplint.fixes.load_state import whole_load
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD502",
    summary="a sharded model's optimizer state is written or loaded as one file",
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
    kind = "DTensor shards" if state.generation is Generation.FSDP2 else "slices of flat parameters"
    whose = "this rank's slice" if fact.guards else "each rank's own slice"
    return Report(
        program.span(site),
        f"`{fact.write.function}` writes `{what}`, whose tensors are {kind}: the file holds "
        f"{whose} of the optimizer's state",
        "not the whole state",
        (
            program.evidence(fact.shard.site, "the parameters are sharded"),
            *(program.evidence(state.source, "sharded state") for state in fact.states),
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
        f"`{program.text(read.path, read.node)}`; each needs its own shard",
        "not this rank's slice",
        (
            program.evidence(fact.shard.site, "the parameters are sharded"),
            program.evidence(read, "every rank reads the same file"),
            *_handed_on(program, read, site),
            *program.conditions(site, fact.shard.site),
        ),
        partial(whole_load, program, fact),
    )


def _handed_on(program: Program, read: Site, load: Site) -> Iterator[Evidence]:
    """Yield the call by which what is read gets to a load in another function."""
    frame = common_frame(read, load)
    if frame is not None and frame[2] is not load.node:
        yield program.evidence(Site(frame[0], frame[2]), "and loads it by this call")
