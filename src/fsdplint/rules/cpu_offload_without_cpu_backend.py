"""Gradients on the CPU, in a process group that has no backend for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument, library_name
from fsdplint.engine.facts.weights import related
from fsdplint.engine.interpreter.events import Call, Shard
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Object,
    Parameters,
    Sequence,
    Symbol,
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
from fsdplint.knowledge.launch import CUDA_IS_AVAILABLE, INIT, NCCL
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.knowledge.policies import CPU_OFFLOAD_POLICY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD106",
    summary="gradients that are kept on the CPU have no backend there",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class NoCpuBackend:
    """A norm of gradients that FSDP2 keeps on the CPU, where NCCL alone was asked for.

    Attributes:
        backend: the argument that asks for it, or the call where that is written elsewhere.
    """

    init: Call
    backend: ir.Node
    shard: Shard
    norm: Call


def offloads_without_backend(program: Program) -> Iterator[NoCpuBackend]:
    """The first norm of offloaded gradients on each path whose process groups are NCCL's alone."""
    for trace in program.traces:
        inits = trace.calls(INIT)
        told = all(_is_nccl_alone(program, call) for call in inits)
        offloaded = [s for s in trace.of(Shard) if _offloads(s)] if inits and told else []
        for norm in trace.calls(*CLIPPING) if offloaded else ():
            module = _module(norm.arguments.get(0, "parameters"))
            shard = next((s for s in offloaded if module and related(module, s.module)), None)
            init = next((call for call in reversed(inits) if call.time < norm.time), None)
            if shard is None or init is None or not program.together(init.site, shard.site):
                continue
            if program.together(norm.site, shard.site):
                written = argument(init.site.node, 0, "backend")
                node = init.site.node if written is None else written.value
                yield NoCpuBackend(init, node, shard, norm)
                break


def _module(taken: Value | None) -> Object | None:
    """The module whose parameters are taken, all of them or those that have gradients."""
    if isinstance(taken, Sequence):
        taken = next((each for each in taken.rest if isinstance(each, Parameters)), taken)
    return taken.module if isinstance(taken, Parameters) else None


def _is_nccl_alone(program: Program, call: Call) -> bool:
    """Whether a group has NCCL's backend only, wherever there is CUDA."""
    value = call.arguments.get(0, "backend")
    written = argument(call.site.node, 0, "backend")
    tree = program.tree(call.site.path)
    chosen = None if written is None else tree.chosen(written.value)
    if chosen is not None and isinstance(value, Choice):
        there = _where_cuda_is(program, call.site.path, *_positive(*chosen))
        told = isinstance(there, ir.Constant) and there.value == "nccl"
        return told and set(map(_backend, may_be(value))) == {"nccl", "gloo"}
    return value is not None and _backend(value) in ("nccl", "cuda:nccl")


def _where_cuda_is(
    program: Program, path: str, test: ir.Expr, there: ir.Expr, otherwise: ir.Expr
) -> ir.Expr | None:
    """What a choice by a test for CUDA, or of the device, gives where the program runs on CUDA."""
    asked = test.func if isinstance(test, ir.Call) else test
    if library_name(program.project, path, asked) == CUDA_IS_AVAILABLE:
        return there
    if not isinstance(test, ir.Compare) or not _is_device(test.left):
        return None
    named = test.right.value if isinstance(test.right, ir.Constant) else None
    if named not in ("cpu", "cuda") or test.op not in ("Equal", "NotEqual"):
        return None
    return there if (named == "cuda") is (test.op == "Equal") else otherwise


def _is_device(node: ir.Expr) -> bool:
    """Whether an expression is called a device, such as ``args.device`` or ``device.type``."""
    if isinstance(node, ir.Attribute) and node.attr == "type":
        node = node.value
    return ir.last_name(node).strip("_") in ("device", "device_type")


def _positive(
    test: ir.Expr, there: ir.Expr, otherwise: ir.Expr
) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    """A choice without ``not``."""
    return (
        (test.operand, otherwise, there) if isinstance(test, ir.Not) else (test, there, otherwise)
    )


def _backend(value: Value) -> str:
    if isinstance(value, Symbol) and value.name == NCCL:
        return "nccl"
    return str(value.value).lower() if isinstance(value, Const) else ""


def _offloads(shard: Shard) -> bool:
    """Whether a call keeps parameters on the CPU, be it by an option only."""
    policy = shard.keywords.get("offload_policy")
    made = [each for each in may_be(policy) if isinstance(each, Object)]
    offloads = any(CPU_OFFLOAD_POLICY in class_names(each.cls) for each in made)
    return shard.generation is Generation.FSDP2 and offloads


def reports(program: Program) -> Iterator[Report]:
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
    code = Code.of(program.tree(fact.init.site.path))
    chosen = program.conditions(fact.init.site, fact.shard.site, fact.norm.site)
    # `get_backend` then returns another text than "nccl".
    asked = any("get_backend" in unit.text for unit in program.units)
    tree = program.tree(fact.shard.site.path)
    given = argument(fact.shard.call, KEYWORD_ONLY, "offload_policy")
    stated = given is not None and isinstance(tree.meaning(given.value), ir.Call)
    always = stated and not chosen and not asked and code.is_private()
    return with_cpu(code, fact.backend, always)
