from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.device_maps import spread_models
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def device_map_auto(program: Program) -> Iterator[Report]:
    for fact in spread_models(program):
        site, shard = fact.load, fact.shard.site
        assert isinstance(site.node, ir.Call)
        call = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(site),
            f'`device_map="{fact.map}"` has every rank spread the model over all GPUs of its node, '
            f"and `{call}` {program.where(shard, site)} wants each rank on one",
            "on several GPUs",
            (program.evidence(shard, "sharded"), *program.conditions(site, shard)),
            partial(
                fixes.drop_argument.drop_argument,
                fixes.code.Code.of(program.tree(site.path)),
                site.node,
                "device_map",
                "load without a device map, as each rank's own copy",
            ),
        )
