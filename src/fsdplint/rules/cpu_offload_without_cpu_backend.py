from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.offload_backends import NoCpuBackend, offloads_without_backend
from fsdplint.engine.program import Program
from fsdplint.engine.written import argument
from fsdplint.finding import Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def cpu_offload_without_cpu_backend(program: Program) -> Iterator[Report]:
    for fact in offloads_without_backend(program):
        site, norm = fact.init.site, fact.norm.site
        yield Report(
            Span(site.path, fact.backend.start, fact.backend.end),
            "the process group has a backend for CUDA only, and "
            f"`{program.text(norm.path, norm.node.func)}` {program.where(norm, site)} "  # type: ignore[attr-defined]  # a call
            "combines norms on the CPU, where `CPUOffloadPolicy` keeps the gradients",
            "no backend for the CPU",
            (
                program.evidence(fact.shard.site, "keeps parameters and gradients on the CPU"),
                program.evidence(norm, "fails here"),
                *program.conditions(site, fact.shard.site, norm),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: NoCpuBackend) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.init.site.path))
    chosen = program.conditions(fact.init.site, fact.shard.site, fact.norm.site)
    # `get_backend` then returns another text than "nccl".
    asked = any("get_backend" in unit.text for unit in program.units)
    tree = program.tree(fact.shard.site.path)
    given = argument(fact.shard.call, 99, "offload_policy")
    stated = given is not None and isinstance(tree.meaning(given.value), ir.Call)
    always = stated and not chosen and not asked and code.is_private()
    return fixes.process_group.with_cpu(code, fact.backend, always)
