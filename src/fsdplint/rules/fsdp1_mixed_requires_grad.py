from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.events import Shard
from fsdplint.engine.facts.frozen import MixedUnit, mixed_units
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def fsdp1_mixed_requires_grad(program: Program) -> Iterator[Report]:
    facts = list(mixed_units(program))
    raising = [fact.shard for fact in facts]
    for fact in facts:
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
                _is_always(program, fact, raising),
            ),
        )


def _is_always(program: Program, fact: MixedUnit, raising: list[Shard]) -> bool:
    """Whether the call raises on every path that is known, and none is not."""
    site = fact.shard.site
    every = [each for t in program.traces for each in t.of(Shard) if each.call is fact.shard.call]
    known = program.tree(site.path).is_private() and not program.project.early_stops
    chosen = program.conditions(fact.frozen)
    return known and not chosen and all(any(each is other for other in raising) for each in every)
