from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.mixtures import Mixture, mixtures
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report

_NAMES = {
    "DDP": "DistributedDataParallel",
    "FSDP1": "FullyShardedDataParallel",
    "FSDP2": "fully_shard",
    "replicate": "replicate",
}


def ddp_around_fsdp(program: Program) -> Iterator[Report]:
    for fact in mixtures(program):
        inner, outer = _NAMES[fact.inner], _NAMES[fact.outer]
        yield Report(
            program.span(fact.site),
            f"`{program.text(fact.site.path, fact.site.node)}` is given a model that `{inner}` "
            f"has {program.where(fact.inner_site, fact.site)}: {_harm(fact)}",
            f"`{outer}` on top of `{inner}`",
            (
                program.evidence(fact.inner_site, f"`{inner}` has it, or a part of it"),
                *program.conditions(fact.inner_site, fact.site),
            ),
            partial(_fix, program, fact),
        )


def _harm(fact: Mixture) -> str:
    if fact.outer == "DDP":
        return "DDP cannot work with shards; hybrid sharding is a mesh with two dimensions"
    return "the two exclude each other"


def _fix(program: Program, fact: Mixture) -> Fix | Declined:
    if fact.outer != "DDP":
        return Declined("which of the two is meant is not known")
    return fixes.unwrap.unwrap(fixes.code.Code.of(program.tree(fact.site.path)), fact.site.node)
