"""All processes of a node run on its first GPU."""

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
    summary="all processes of a node run on its first GPU",
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
            f"`{_called(program, fact)}` uses GPU 0 in every process, since nothing calls "
            "`torch.cuda.set_device`: the other GPUs stay idle, and GPU 0 runs out of memory or "
            "NCCL fails",
            "uses GPU 0 in every process",
            (
                program.evidence(fact.init.site, "process group is created here"),
                program.evidence(fact.shard.site, "model is sharded here"),
                *program.conditions(site, fact.init.site),
            ),
            partial(_fix, program, fact),
        )


def _called(program: Program, fact: SharedDevice) -> str:
    """Return ``FSDP`` or ``.to("cuda")``, without the model in front."""
    site = fact.use.site
    assert isinstance(site.node, ir.Call)
    function = site.node.func
    if isinstance(fact.use, Call) and isinstance(function, ir.Attribute):
        model, call = function.value, site.node
        return program.text(site.path, call).removeprefix(program.text(site.path, model))
    return program.text(site.path, function)


def _fix(program: Program, fact: SharedDevice) -> Fix | Declined:
    init = fact.init
    if fact.spawned:
        return Declined(
            "the program starts its processes itself, without `LOCAL_RANK`; call "
            "`torch.cuda.set_device` by hand"
        )
    if init.time > fact.use.time:
        return Declined(
            "CUDA is used before `init_process_group`; call `torch.cuda.set_device` before both by "
            "hand"
        )
    if init.argument(4, "rank") is not None:
        return Declined(
            "the program passes `rank` itself, so `LOCAL_RANK` may be missing; call "
            "`torch.cuda.set_device` by hand"
        )
    backend = argument(init.site.node, 0, "backend")
    literal = backend is not None and isinstance(backend.value, ir.Constant)
    sure = literal and not init.site.guards
    code = Code.of(program.tree(init.site.path))
    return set_device(code, init.site.node, perhaps=not sure)  # type: ignore[arg-type]  # a call
