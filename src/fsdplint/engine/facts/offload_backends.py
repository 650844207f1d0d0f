"""Gradients on the CPU, in a process group that has no backend for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard
from fsdplint.engine.facts.weights import related
from fsdplint.engine.program import Program
from fsdplint.engine.values import Const, Object, Parameters, class_names
from fsdplint.engine.written import argument
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.launch import INIT, NORMS
from fsdplint.knowledge.policies import CPU_OFFLOAD_POLICY


@dataclass(frozen=True, slots=True)
class NoCpuBackend:
    """A norm of gradients that FSDP2 keeps on the CPU, where NCCL alone was asked for.

    Attributes:
        backend: the argument that asks for it.
    """

    init: Call
    backend: ir.Node
    shard: Shard
    norm: Call


def offloads_without_backend(program: Program) -> Iterator[NoCpuBackend]:
    """The first norm of offloaded gradients on each path whose process group is NCCL's alone."""
    for trace in program.traces:
        inits = [call for call in trace.calls(INIT) if _is_nccl_alone(call)]
        offloaded = [shard for shard in trace.of(Shard) if _offloads(shard)] if inits else []
        for norm in trace.calls(*NORMS) if offloaded else ():
            taken = norm.arguments.get(0, "parameters")
            module = taken.module if isinstance(taken, Parameters) else None
            shard = next((s for s in offloaded if module and related(module, s.module)), None)
            init = next((call for call in reversed(inits) if call.time < norm.time), None)
            if shard is None or init is None or not program.together(init.site, shard.site):
                continue
            written = argument(init.site.node, 0, "backend")
            if written is not None and program.together(norm.site, shard.site):
                yield NoCpuBackend(init, written.value, shard, norm)
                break


def _is_nccl_alone(call: Call) -> bool:
    value = call.arguments.get(0, "backend")
    return isinstance(value, Const) and str(value.value).lower() in ("nccl", "cuda:nccl")


def _offloads(shard: Shard) -> bool:
    policy = shard.keywords.get("offload_policy")
    made = isinstance(policy, Object) and CPU_OFFLOAD_POLICY in class_names(policy.cls)
    return shard.generation is Generation.FSDP2 and made
