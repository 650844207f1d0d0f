"""The global rank is used as a device index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.devices import GlobalDevice, global_devices
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.local_rank import use_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD102",
    summary="the global rank is used as a device index",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in global_devices(program):
        site = fact.site
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` is the global rank "
            f"(`{fact.told_by.rpartition('.')[2]}`), but each node numbers its devices from 0: "
            "from the second node on, processes crash with an invalid device",
            "global rank used as a device index",
            (
                program.evidence(fact.use, "expects a device index of this node"),
                *program.conditions(site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: GlobalDevice) -> Fix | Declined:
    code = Code.of(program.tree(fact.site.path))
    return use_rank(code, fact.site.node, fact.local, "local rank")  # type: ignore[arg-type]  # a device is an expression
