from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.roots import RootOnly, root_only_shards
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def only_root_sharded(program: Program) -> Iterator[Report]:
    for fact in root_only_shards(program):
        site, call = fact.shard.site, fact.shard.call
        module = fixes.shard_blocks.module_argument(call)
        model = f"`{program.text(site.path, module.value)}`" if module else "a model"
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call.func)}` shards {model} as one unit: its forward "
            "all-gathers every parameter at once",
            _label(fact),
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _label(fact: RootOnly) -> str:
    if fact.idle_policy is not None:
        return "is given no wrap policy"
    return f"the blocks of `{fact.model_class}` are in the root's unit"


def _evidence(program: Program, fact: RootOnly) -> tuple[Evidence, ...]:
    module, policy = fact.shard.module, fact.idle_policy
    if policy is not None:
        span = Span(fact.shard.site.path, policy.start, policy.end)
        return (Evidence(span, "this policy is never used"),)
    if module.site is None:
        return ()
    blocks = " and ".join(f"`{path}`" for path in fact.containers)
    note = f"the model repeats blocks in {blocks}" if blocks else "the model repeats blocks"
    return (program.evidence(module.site, note),)


def _fix(program: Program, fact: RootOnly) -> Fix | Declined:
    tree = program.tree(fact.shard.site.path)
    code = fixes.code.Code.of(tree)
    if fact.idle_policy is not None:
        if tree.function(fact.idle_policy) is not tree.function(fact.shard.call):
            return Declined("the policy is made in another function")
        return fixes.shard_blocks.use_policy(code, fact.shard.call, fact.idle_policy)
    if not fact.containers:
        return Declined("where the blocks are depends on the checkpoint the model is made from")
    if fact.several:
        return Declined("the call shards several models, whose blocks stand in different places")
    return fixes.shard_blocks.shard_blocks(
        code, fact.shard.call, fact.containers, fact.shard.generation
    )
