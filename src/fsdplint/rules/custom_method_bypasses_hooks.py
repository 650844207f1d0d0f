from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.methods import BypassingMethod, bypassing_methods
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report


def custom_method_bypasses_hooks(program: Program) -> Iterator[Report]:
    for fact in bypassing_methods(program):
        source = fact.method.source
        text = program.text(source.path, source.node)
        module = text.removesuffix(f".{fact.method.name}")
        where = program.where(fact.shard.site, source)
        yield Report(
            program.span(source),
            f"`{text}` uses parameters of `{module}` past the hooks that all-gather them, since "
            f"it is not registered with FSDP, which shards `{module}` {where}",
            "runs on the local shards",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: BypassingMethod) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.use, "uses parameters of the unit itself"),
        program.evidence(fact.shard.site, "sharded here"),
        *program.conditions(fact.shard.site),
    )


def _fix(program: Program, fact: BypassingMethod) -> Fix | Declined:
    shard, name = fact.shard, fact.method.name
    if shard.generation is Generation.FSDP1:
        return Declined("FSDP1 gathers in the wrapper's forward only, from where it must be called")
    if not fact.everywhere:
        call = program.text(shard.site.path, shard.call)
        return Declined(f"`{call}` also shards modules that have no `{name}`")
    return fixes.register.register_method(
        fixes.code.Code.of(program.tree(shard.site.path)), shard.call, name
    )
