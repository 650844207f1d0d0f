from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.joins import HooklessJoin, hookless_joins
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.join import without_join
from fsdplint.rule import Report, rule


@rule(
    "FSD602",
    summary="`Join` is given a sharded model, which has no hook for it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause=None,
)
def join_with_fsdp(program: Program) -> Iterator[Report]:
    for fact in hookless_joins(program):
        site, shard = fact.call.site, fact.shard
        text = program.text(site.path, fact.node)
        message, label = "`Join` is given nothing to join", "nothing"
        if shard is not None:
            message = (
                f"`Join` asks `{text}` for its `join_hook`, which {shard.generation.value} does "
                "not have: a rank that is out of batches cannot stand in for its collectives"
            )
            label = "has no `join_hook`"
        sites = [site] if shard is None else [site, shard.site]
        sharded = [] if shard is None else [program.evidence(shard.site, "is sharded here")]
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            message,
            label,
            (*sharded, *program.conditions(*sites)),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: HooklessJoin) -> Fix | Declined:
    code = Code.of(program.tree(fact.call.site.path))
    return without_join(code, fact.call.site.node, None if fact.shard is None else fact.node)
