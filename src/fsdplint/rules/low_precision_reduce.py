from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.reduction import low_reductions
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def low_precision_reduce(program: Program) -> Iterator[Report]:
    for fact in low_reductions(program):
        site = fact.shard.site
        yield Report(
            program.span(fact.place),
            f"`{program.text(site.path, fact.shard.call.func)}` "
            f"{program.where(site, fact.place)} adds the gradients of all ranks up in "
            f"{fact.dtype}, which rounds the sum",
            "rounds the gradients",
            (program.evidence(site, "given here"),),
            partial(
                fixes.reduce_dtype.reduce_in_full,
                fixes.code.Code.of(program.tree(fact.place.path)),
                fact.place.node,
            ),
        )
