"""Every process of a node computes on its first device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.devices import SharedDevice, shared_devices
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.local_rank import set_device
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD101",
    summary="every process of a node computes on its first device",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in shared_devices(program):
        site = fact.use.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{_called(program, fact)}` uses the current device, which is GPU 0 in every process: "
            "`torch.cuda.set_device` never gives each process its own",
            "the first device, in every process",
            (
                program.evidence(fact.init.site, "the processes of a node"),
                program.evidence(fact.shard.site, "shards over them"),
                *program.conditions(site, fact.init.site),
            ),
            partial(_fix, program, fact),
        )


def _called(program: Program, fact: SharedDevice) -> str:
    site = fact.use.site
    assert isinstance(site.node, ir.Call)
    function = site.node.func
    if isinstance(fact.use, Call) and isinstance(function, ir.Attribute):
        return function.attr
    return program.text(site.path, function)


def _fix(program: Program, fact: SharedDevice) -> Fix | Declined:
    init = fact.init
    if fact.spawned:
        return Declined("the program starts its processes itself, which torchrun does not number")
    if init.time > fact.use.time:
        return Declined("CUDA is in use before the process group is made")
    if init.argument(4, "rank") is not None:
        return Declined("the processes are numbered by another launcher than torchrun")
    backend = argument(init.site.node, 0, "backend")
    told = backend is not None and isinstance(backend.value, ir.Constant)
    sure = told and not init.site.guards
    code = Code.of(program.tree(init.site.path))
    return set_device(code, init.site.node, perhaps=not sure)  # type: ignore[arg-type]  # a call
