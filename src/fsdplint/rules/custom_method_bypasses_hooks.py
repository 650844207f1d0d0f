from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.methods import BypassingMethod, bypassing_methods
from fsdplint.engine.must.classes import method
from fsdplint.engine.must.values import Instance, Known, always
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety
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
    if fact.nested:
        return Declined(
            f"`forward` calls `{name}`, whose hooks would reshard before `forward` ends"
        )
    code = fixes.code.Code.of(program.tree(shard.site.path))
    return fixes.register.register_method(code, shard.call, name, _safety(program, fact))


def _safety(program: Program, fact: BypassingMethod) -> Safety:
    """Safe where whatever is sharded there has the method: registering one that it lacks raises."""
    shard = fact.shard
    given = fixes.shard_blocks.module_argument(shard.call)
    if given is None:
        return Safety.UNSAFE
    at = program.tree(shard.site.path).statement(shard.call)
    has = partial(_has_method, program, fact.method.name)
    sure = always(program, shard.site.path, given.value, at, has)
    return Safety.SAFE if sure else Safety.UNSAFE


def _has_method(program: Program, name: str, value: Known) -> bool:
    found = method(program, value.cls, name) if isinstance(value, Instance) else None
    node = None if found is None else found.unit.node(found)
    if not isinstance(node, ir.FunctionDef):
        return False
    return not node.function.decorators and not node.function.is_generator
