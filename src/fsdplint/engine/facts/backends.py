"""Backends that a process group is asked to have."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.values import Choice, Const, Symbol, Value, may_be
from fsdplint.engine.program import Program
from fsdplint.knowledge.launch import CUDA_IS_AVAILABLE, NCCL


def written_backend(init: Call) -> ir.Node:
    """The argument that asks for a backend, or the call where that is written elsewhere."""
    written = argument(init.site.node, 0, "backend")
    return init.site.node if written is None else written.value


def is_nccl_alone(program: Program, call: Call) -> bool:
    """Whether a group has NCCL's backend only, wherever there is CUDA."""
    value = call.arguments.get(0, "backend")
    written = argument(call.site.node, 0, "backend")
    tree = program.tree(call.site.path)
    chosen = None if written is None else tree.chosen(written.value)
    if chosen is not None and isinstance(value, Choice):
        there = where_cuda_is(program, call.site.path, *chosen)
        told = isinstance(there, ir.Constant) and there.value == "nccl"
        return told and set(map(_backend, may_be(value))) == {"nccl", "gloo"}
    return value is not None and _backend(value) in ("nccl", "cuda:nccl")


def where_cuda_is(
    program: Program, path: str, test: ir.Expr, there: ir.Expr, otherwise: ir.Expr
) -> ir.Expr | None:
    """What a choice by a test for CUDA, or of the device, gives where the program runs on CUDA."""
    test, there, otherwise = _positive(test, there, otherwise)
    asked = test.func if isinstance(test, ir.Call) else test
    if program.project.library_name(path, asked) == CUDA_IS_AVAILABLE:
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
