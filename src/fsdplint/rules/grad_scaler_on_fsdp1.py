from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.scalers import LocalScaler, local_scalers
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.scaling import asks_for_class
from fsdplint.rule import Report


def grad_scaler_on_fsdp1(program: Program) -> Iterator[Report]:
    for fact in local_scalers(program):
        made, shard = fact.made, fact.shard.site
        yield Report(
            program.span(made),
            f"`{program.text(made.path, made.node)}` looks for overflows in this rank's shards of "
            f"the gradients, since `{program.text(shard.path, fact.shard.call.func)}` wraps the "
            f"model {program.where(shard, made)}: where only some ranks have one, only these skip "
            "the step and lower their scale",
            "another decision on each rank",
            (
                program.evidence(shard, "wrapped by FSDP1 here"),
                program.evidence(fact.step.site, "steps, or does not, by what this rank sees"),
                *program.conditions(made, shard),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalScaler) -> Fix | Declined:
    if program.sometimes_without(fact.made, fact.shard.site):
        return Declined("the model is not always wrapped, and the sharded scaler waits for ranks")
    texts = (unit.text for unit in program.units)
    return fixes.scaler.shard_scaler(
        fixes.code.Code.of(program.tree(fact.made.path)),
        fact.made.node,
        fact.name,
        _is_by_all(program, fact) and not asks_for_class(texts),
    )


def _is_by_all(program: Program, fact: LocalScaler) -> bool:
    """Whether what the sharded scaler has all ranks wait in hangs on no test: steps, `unscale_`."""
    known = {(g.key, g.taken) for g in (*fact.made.guards, *fact.shard.site.guards)}
    tests = [g for g in fact.step.site.guards if (g.key, g.taken) not in known]
    step = set(program.tree(fact.step.site.path).ancestors(fact.step.site.node))
    for tree in program.trees_with("unscale_"):
        for node in tree.walk("unscale_"):
            if isinstance(node, ir.Attribute) and node.attr == "unscale_":
                around = set(tree.ancestors(node)) - step
                if any(isinstance(each, (ir.If, ir.Conditional, ir.BoolOp)) for each in around):
                    return False
    return all(guard.progress and not guard.divergent for guard in tests)
