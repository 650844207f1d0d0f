"""Asynchronous checkpoint saves on a process group without a CPU backend."""

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
    summary="`async_save` runs on a process group that has no CPU backend",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has only one finding on public code so far; that one is correct.",
)


@dataclass(frozen=True, slots=True)
class NoCpuBackend:
    """An asynchronous save on a process group that has only the NCCL backend."""

    init: Call
    save: Call


def saves_without_backend(program: Program) -> Iterator[NoCpuBackend]:
    """Yield the first asynchronous save on each path whose process groups have only NCCL."""
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
    """Whether a save certainly uses the default process group."""
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
            f"`{program.text(save.path, save.node.func)}` {program.where(save, init)} "  # type: ignore[attr-defined]  # a call
            "crashes: it needs a CPU backend, and this process group has only NCCL",
            "no CPU backend",
            (program.evidence(save, "crashes here"), *program.conditions(init, save)),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NoCpuBackend) -> Fix | Declined:
    code = Code.of(program.tree(fact.init.site.path))
    return with_cpu(code, written_backend(fact.init), always=False)
