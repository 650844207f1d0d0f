from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.ranks_weights import (
    DifferentSeeds,
    LoadedAlone,
    different_seeds,
    loaded_alone,
)
from fsdplint.engine.places import common_frame
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report


def rank_dependent_init(program: Program) -> Iterator[Report]:
    for seeds in different_seeds(program):
        yield _seeds(program, seeds)
    for load in loaded_alone(program):
        yield _load(program, load)


def _seeds(program: Program, fact: DifferentSeeds) -> Report:
    seed, shard, made = fact.place, fact.shard, fact.model.site
    return Report(
        program.span(seed),
        f"`{program.text(seed.path, seed.node)}` has each rank draw weights of its own, and "
        f"`{program.text(shard.site.path, shard.call.func)}` {program.where(shard.site, seed)} "
        "makes the model of their slices",
        "another seed on each rank",
        (
            *(() if made is None else (program.evidence(made, "the weights are drawn"),)),
            program.evidence(shard.site, "each rank keeps its slice of its own weights"),
            *program.conditions(fact.seed.site, shard.site),
        ),
        partial(_reseed, program, fact),
    )


def _reseed(program: Program, fact: DifferentSeeds) -> Fix | Declined:
    frame = common_frame(fact.seed.site, fact.last.site)
    if frame is None or frame[1] is not fact.place.node:
        return Declined("the seed is set in one function and the model sharded in another")
    path, seed, last = frame
    assert isinstance(seed, ir.Call)
    return fixes.equal_weights.seed_after_sharding(
        fixes.code.Code.of(program.tree(path)), seed, last
    )


def _load(program: Program, fact: LoadedAlone) -> Report:
    site, shard = fact.source, fact.shard
    assert isinstance(site.node, ir.Call)
    return Report(
        program.span(site),
        f"`{program.text(site.path, site.node.func)}` loads weights on some ranks only, and "
        f"`{program.text(shard.site.path, shard.call.func)}` {program.where(shard.site, site)} "
        "makes the model of slices of all of them",
        "the other ranks keep other weights",
        (
            program.evidence(shard.site, "each rank keeps its slice of its own weights"),
            *program.conditions(site, shard.site),
        ),
        partial(_load_fix, program, fact),
    )


def _load_fix(program: Program, fact: LoadedAlone) -> Fix | Declined:
    shard = fact.shard
    if shard.generation is Generation.FSDP1:
        return fixes.equal_weights.sync_states(
            fixes.code.Code.of(program.tree(shard.site.path)), shard.call
        )
    return fixes.equal_weights.load_everywhere(
        fixes.code.Code.of(program.tree(fact.source.path)), fact.source.node, fact.guard.test
    )
