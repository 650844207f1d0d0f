from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.optimizers import StaleOptimizer, stale_optimizers
from fsdplint.engine.places import common_frame, nodes_in_frame
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report


def optimizer_before_sharding(program: Program) -> Iterator[Report]:
    for fact in stale_optimizers(program):
        site, shard = fact.build.site, fact.shard.site
        call = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(site),
            f"`{fact.build.label}` holds the parameters that `{call}` replaces "
            f"{program.where(shard, site)}, so its steps do not change the model",
            "holds the unsharded parameters",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: StaleOptimizer) -> tuple[Evidence, ...]:
    module = fact.capture.module
    made = () if module.site is None else (program.evidence(module.site, "the model is built"),)
    return (
        *made,
        program.evidence(fact.capture.source, "the parameters are taken"),
        program.evidence(fact.shard.site, _replacement(fact)),
        *program.conditions(fact.build.site, fact.shard.site),
    )


def _replacement(fact: StaleOptimizer) -> str:
    if fact.shard.generation is Generation.FSDP1:
        return "the parameters are flattened into new ones"
    return "the parameters become DTensor shards"


def _fix(program: Program, fact: StaleOptimizer) -> Fix | Declined:
    captured_early = fact.build.time > fact.last.time
    first = fact.capture.source if captured_early else fact.build.site
    frame = common_frame(first, fact.last.site)
    if frame is None:
        return Declined("the optimizer and the sharding stand in functions that share no caller")
    path, moved, last = frame
    if not isinstance(moved, ir.Call):
        return Declined("the optimizer is built where its class is defined")
    captures = nodes_in_frame(fact.optimizer_captures, first, moved)
    return fixes.optimizer.build_after_sharding(
        fixes.code.Code.of(program.tree(path)), moved, captures, last
    )
