from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_sync import UnreducedStep, unreduced_steps
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def gradient_sync_left_off(program: Program) -> Iterator[Report]:
    for fact in unreduced_steps(program):
        site, call = fact.off.site, fact.off.site.node
        assert isinstance(call, ir.Call)
        step = fact.step.site
        told = program.text(site.path, call)
        evidence = [
            program.evidence(fact.shard.site, "sharded here"),
            program.evidence(fact.backward.site, "its gradients stay unreduced on each rank"),
        ]
        if fact.late is not None:
            evidence.append(program.evidence(fact.late.site, "too late: no backward follows"))
        evidence.append(program.evidence(step, "finds no gradient"))
        yield Report(
            program.span(site),
            f"`{told}` {_until(fact)}, so no gradient is reduced and the step "
            f"{program.where(step, site)} changes nothing",
            "reduces no gradient from here on",
            (*evidence, *program.conditions(site)),
            partial(
                fixes.gradient_sync.reduce_last_micro_batch,
                fixes.code.Code.of(program.tree(site.path)),
                call,
                step.node if step.path == site.path else None,
            ),
        )


def _until(fact: UnreducedStep) -> str:
    if fact.late is not None:
        return "is only undone behind the last backward"
    return "is never undone once it is reached" if fact.sticky else "holds in every backward"
