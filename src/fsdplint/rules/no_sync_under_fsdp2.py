from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_sync import missing_no_syncs
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def no_sync_under_fsdp2(program: Program) -> Iterator[Report]:
    for fact in missing_no_syncs(program):
        site, call = fact.call.site, fact.call.site.node
        assert isinstance(call, ir.Call)
        where = program.where(fact.shard.site, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call)}` raises AttributeError: `fully_shard` {where} "
            "makes an FSDP2 module, which has no `no_sync`",
            "no such method under FSDP2",
            (
                program.evidence(fact.shard.site, "an FSDP2 module from here on"),
                *program.conditions(fact.shard.site),
            ),
            partial(
                fixes.no_sync.sync_last_micro_batch,
                fixes.code.Code.of(program.tree(site.path)),
                call,
            ),
        )
