from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.mixed_lists import MixedList, mixed_lists
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def foreach_with_mixed_parameters(program: Program) -> Iterator[Report]:
    for fact in mixed_lists(program):
        site, shard = fact.site, fact.shard.site
        what = f"with `{fact.option}=True` the step" if fact.option else "the clipping"
        yield Report(
            program.span(site),
            f"{what} takes DTensors and plain tensors in one operation, since "
            f"`{program.text(shard.path, fact.shard.call.func)}` leaves out the `ignored_params` "
            f"{program.where(shard, site)}",
            "raises a RuntimeError",
            (
                program.evidence(shard, "some parameters stay plain tensors"),
                *program.conditions(site, shard),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: MixedList) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.site.path))
    if not fact.option:
        return fixes.clip_apart.clip_apart(code, fact.site.node)
    # A run that does not shard has no reason to be slower.
    apart = program.sometimes_without(fact.site, fact.shard.site)
    safety = Safety.UNSAFE if apart else Safety.SAFE
    return fixes.one_by_one.one_by_one(code, fact.site.node, fact.option, safety)
