from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.frozen import mixed_units
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def fsdp1_mixed_requires_grad(program: Program) -> Iterator[Report]:
    for fact in mixed_units(program):
        shard, frozen = fact.shard, fact.frozen
        yield Report(
            program.span(shard.site),
            f"`{program.text(shard.site.path, shard.call.func)}` flattens parameters that train "
            f"together with others that `{program.text(frozen.path, frozen.node)}` freezes "
            f"{program.where(frozen, shard.site)}, which it refuses without "
            "`use_orig_params=True`",
            "raises a ValueError",
            (
                program.evidence(frozen, "only a part of the unit is frozen"),
                *program.conditions(frozen, shard.site),
            ),
            partial(
                fixes.original_parameters.keep_original,
                fixes.code.Code.of(program.tree(shard.site.path)),
                shard.call,
            ),
        )
