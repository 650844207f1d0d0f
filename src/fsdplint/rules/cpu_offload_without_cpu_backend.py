"""Gradients on the CPU, in a process group without a backend for the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.backends import is_nccl_alone, written_backend
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.weights import related
from fsdplint.engine.interpreter.events import Call, Shard
from fsdplint.engine.interpreter.values import (
    Object,
    Parameters,
    Sequence,
    Value,
    class_names,
    may_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.process_group import with_cpu
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import CLIPPING
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.knowledge.policies import CPU_OFFLOAD_POLICY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD106",
    summary="gradients stay on the CPU, but the process group has no CPU backend",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class NoCpuBackend:
    """Clipping of gradients that FSDP2 keeps on the CPU, with NCCL as the only backend.

    Attributes:
        backend: the argument that names it, or the call if that is elsewhere.
    """

    init: Call
    backend: ir.Node
    shard: Shard
    norm: Call


def offloads_without_backend(program: Program) -> Iterator[NoCpuBackend]:
    """Yield the first clipping of offloaded gradients on each path with NCCL groups only."""
    for trace in program.traces:
        inits = trace.calls(INIT)
        told = all(is_nccl_alone(program, call) for call in inits)
        offloaded = [s for s in trace.of(Shard) if _offloads(s)] if inits and told else []
        for norm in trace.calls(*CLIPPING) if offloaded else ():
            module = _module(norm.arguments.get(0, "parameters"))
            shard = next((s for s in offloaded if module and related(module, s.module)), None)
            init = next((call for call in reversed(inits) if call.time < norm.time), None)
            if shard is None or init is None or not program.together(init.site, shard.site):
                continue
            if program.together(norm.site, shard.site):
                yield NoCpuBackend(init, written_backend(init), shard, norm)
                break


def _module(taken: Value | None) -> Object | None:
    """Return the module whose parameters are clipped, all or only those with gradients."""
    if isinstance(taken, Sequence):
        taken = next((each for each in taken.rest if isinstance(each, Parameters)), taken)
    return taken.module if isinstance(taken, Parameters) else None


def _offloads(shard: Shard) -> bool:
    """True if a call keeps parameters on the CPU, or does so for some options."""
    policy = shard.keywords.get("offload_policy")
    made = [each for each in may_be(policy) if isinstance(each, Object)]
    offloads = any(CPU_OFFLOAD_POLICY in class_names(each.cls) for each in made)
    return shard.generation is Generation.FSDP2 and offloads


def reports(program: Program) -> Iterator[Report]:
    for fact in offloads_without_backend(program):
        site, norm = fact.init.site, fact.norm.site
        yield Report(
            Span(site.path, fact.backend.start, fact.backend.end),
            f"`{program.text(norm.path, norm.node.func)}` {program.where(norm, site)} crashes: "  # type: ignore[attr-defined]  # a call
            "`CPUOffloadPolicy` keeps the gradients on the CPU, but the process group only has "
            "NCCL, which needs CUDA tensors",
            "no backend for the CPU",
            (
                program.evidence(fact.shard.site, "gradients stay on the CPU"),
                program.evidence(norm, "crashes here"),
                *program.conditions(site, fact.shard.site, norm),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NoCpuBackend) -> Fix | Declined:
    code = Code.of(program.tree(fact.init.site.path))
    chosen = program.conditions(fact.init.site, fact.shard.site, fact.norm.site)
    # After the fix, `get_backend` does not return "nccl".
    asked = any("get_backend" in unit.text for unit in program.units)
    tree = program.tree(fact.shard.site.path)
    given = argument(fact.shard.call, KEYWORD_ONLY, "offload_policy")
    stated = given is not None and isinstance(tree.meaning(given.value), ir.Call)
    always = stated and not chosen and not asked and code.is_private()
    return with_cpu(code, fact.backend, always)
