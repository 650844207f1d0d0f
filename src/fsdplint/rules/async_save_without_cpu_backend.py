"""Checkpoints saved in the background, in a process group that has no backend for the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.backends import is_nccl_alone, written_backend
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.values import Const, Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.process_group import with_cpu
from fsdplint.knowledge.checkpoints import ASYNC_SAVE
from fsdplint.knowledge.launch import INIT, WORLD
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD509",
    summary="a checkpoint is saved in the background without a backend for the CPU",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has one finding on real code yet, which is right.",
)


@dataclass(frozen=True, slots=True)
class NoCpuBackend:
    """A save in the background by a process group that is NCCL's alone."""

    init: Call
    save: Call


def saves_without_backend(program: Program) -> Iterator[NoCpuBackend]:
    """The first save in the background on each path whose process groups are NCCL's alone."""
    for trace in program.traces:
        inits = trace.calls(INIT)
        if not all(is_nccl_alone(program, init) for init in inits):
            continue
        for save in trace.calls(ASYNC_SAVE):
            init = next((each for each in reversed(inits) if each.time < save.time), None)
            if init and _is_of_default(save) and program.together(save.site, init.site):
                yield NoCpuBackend(init, save)
                break


def _is_of_default(save: Call) -> bool:
    """Whether a save surely is the default process group's."""
    group = save.argument(KEYWORD_ONLY, "process_group")
    whole = isinstance(group, Symbol) and group.name == WORLD
    whole = whole or group is None or (isinstance(group, Const) and group.value is None)
    return whole and not save.arguments.open


def reports(program: Program) -> Iterator[Report]:
    for fact in saves_without_backend(program):
        init, save = fact.init.site, fact.save.site
        node = written_backend(fact.init)
        yield Report(
            Span(init.path, node.start, node.end),
            "the process group has a backend for CUDA only, and "
            f"`{program.text(save.path, save.node.func)}` {program.where(save, init)} "  # type: ignore[attr-defined]  # a call
            "needs one for the CPU, where it keeps the copy that it saves",
            "no backend for the CPU",
            (program.evidence(save, "fails here"), *program.conditions(init, save)),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NoCpuBackend) -> Fix | Declined:
    code = Code.of(program.tree(fact.init.site.path))
    return with_cpu(code, written_backend(fact.init), always=False)
