"""The rank among all nodes chooses the device of a node."""

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
    summary="the rank among all nodes chooses the device of a node",
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
            f"(`{fact.told_by.rpartition('.')[2]}`), but devices are numbered on each node: from "
            "the second node on, there is no such device",
            "the global rank",
            (
                program.evidence(fact.use, "takes the number of a device of this node"),
                *program.conditions(site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: GlobalDevice) -> Fix | Declined:
    code = Code.of(program.tree(fact.site.path))
    return use_rank(code, fact.site.node, fact.local, "local rank")  # type: ignore[arg-type]  # a device is an expression
