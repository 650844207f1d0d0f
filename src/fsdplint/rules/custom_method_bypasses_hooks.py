from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.methods import BypassingMethod, bypassing_methods
from fsdplint.engine.program import Program
from fsdplint.engine.values import ClassValue, FunctionValue, Object
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
    if fact.nested:
        return Declined(
            f"`forward` calls `{name}`, whose hooks would reshard before `forward` ends"
        )
    code = fixes.code.Code.of(program.tree(shard.site.path))
    return fixes.register.register_method(code, shard.call, name, _class(shard.module, name))


def _class(module: Object, method: str) -> str:
    """The class of a module whose method can be registered as it is, "" for others."""
    cls = module.cls
    found = cls.lookup(method) if isinstance(cls, ClassValue) else None
    if not isinstance(cls, ClassValue) or not isinstance(found, FunctionValue):
        return ""
    plain = not found.function.decorators and not found.function.is_generator
    return cls.node.name if plain else ""
