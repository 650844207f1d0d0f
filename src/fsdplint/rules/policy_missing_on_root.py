from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.precision import PrecisionSplit, precision_splits
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def policy_missing_on_root(program: Program) -> Iterator[Report]:
    for fact in precision_splits(program):
        root, part = fact.root.site, fact.part.site
        layer = f"`{fact.layer.path().lstrip('.')}`"
        yield Report(
            program.span(root),
            f"the root computes in {_named(fact.root_dtype)} and the modules that "
            f"`{program.text(part.path, fact.part.call.func)}` shards "
            f"{program.where(part, root)} in {_named(fact.part_dtype)}: they meet in the root's "
            f"own {layer}",
            "the forward pass fails",
            (
                program.evidence(part, f"{_named(fact.part_dtype)} here"),
                *program.conditions(root, part),
            ),
            partial(_fix, program, fact),
        )


def _named(dtype: str) -> str:
    return dtype.rpartition(".")[2] or "the dtype of its parameters"


def _fix(program: Program, fact: PrecisionSplit) -> Fix | Declined:
    root, part = fact.root, fact.part
    if len({root.site.path, part.site.path, *(each.site.path for each in fact.others)}) > 1:
        return Declined("the calls stand in different files")
    code = fixes.code.Code.of(program.tree(root.site.path))
    if fact.part_dtype and not fact.root_dtype:
        others = [each.call for each in fact.others if each.call is not part.call]
        return fixes.precision.same_policy(code, part.call, [root.call, *others])
    return fixes.precision.same_policy(code, root.call, [part.call])
