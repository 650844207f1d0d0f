"""Reads of `.module` on DDP's wrapper that no rule's fix changes, or not without a word."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.interpreter.values import ClassValue, FunctionValue
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import BACKWARDS, WRAPPED
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.fsdp1_api_on_fsdp2_model import Fsdp1Use, drop_wrapper, fsdp1_uses

_BYPASSES = "gradients of this call are averaged over ranks, which DDP did not do"


def unwraps(context: Context) -> Iterator[Found]:
    """Yield a change for each `.module` that a `try` hides, or whose call bypasses DDP."""
    program = context.program
    uses = [use for use in fsdp1_uses(program, caught=True) if use.name in WRAPPED]
    certain = {use.node for use in fsdp1_uses(program)}
    found: dict[ir.Node, Fsdp1Use] = {use.node: use for use in uses}
    for node, use in found.items():
        code = Code.of(program.tree(use.site.path))
        fix, differs = drop_wrapper(code, node, Safety.UNSAFE), _BYPASSES * _trains(program, use)
        if isinstance(fix, Fix) and (differs or node not in certain):
            yield Change(code.span(node), fix.title, fix.edits, differs=differs)


def _trains(program: Program, use: Fsdp1Use) -> bool:
    """True if the module itself, or a method of it, is called where gradients are recorded."""
    tree = program.tree(use.site.path)
    function: ir.Node = use.node
    method, cls = tree.parent(function), use.module.cls
    if isinstance(method, ir.Attribute) and isinstance(cls, ClassValue):
        function = method
        if not isinstance(cls.lookup(method.attr), FunctionValue):
            return False
    called = tree.parent(function)
    calls = isinstance(called, ir.Call) and called.func is function
    recorded = gradient_mode(program, use.site) not in NO_GRADIENTS
    return calls and recorded and tree.function(use.node) in _training(program)


def _training(program: Program) -> set[ir.Function | None]:
    """Return the functions in which a backward runs."""
    backwards = (call for trace in program.traces for call in trace.calls(*BACKWARDS))
    frames = (frame for call in backwards for frame in call.site.frames())
    return {program.tree(path).function(node) for path, node in frames}
