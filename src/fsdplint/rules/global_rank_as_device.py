from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.devices import GlobalDevice, global_devices
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def global_rank_as_device(program: Program) -> Iterator[Report]:
    for fact in global_devices(program):
        site = fact.site
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` is the rank among all nodes, by "
            f"`{fact.told_by.rpartition('.')[2]}`; devices are counted on each node, so from the "
            "second node on there is no such device",
            "the global rank",
            (
                program.evidence(fact.use, "takes the number of a device of this node"),
                *program.conditions(site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: GlobalDevice) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.site.path))
    return fixes.local_rank.use_local_rank(code, fact.site.node, fact.local)  # type: ignore[arg-type]  # a device is an expression
