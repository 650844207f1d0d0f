"""Sharded models whose first forward runs in inference mode, and a later one does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import follows
from fsdplint.engine.facts.coverage import is_frozen
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode, inference_mode
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports, orphans, qualified
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import SUMMON_FULL_PARAMS
from fsdplint.knowledge.tensors import INFERENCE_MODE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD312",
    summary="the first forward of a sharded model runs in inference mode, so training fails",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


# FSDP1 gathers the parameters for these, too (torch 2.13), outside of inference mode.
_GATHERS = ("unshard", SUMMON_FULL_PARAMS)


@dataclass(frozen=True, slots=True)
class InferenceFirst:
    """A forward ``first`` that makes inference tensors, which ``later`` cannot use.

    Attributes:
        mode: the context or decorator that turns inference mode on.
    """

    mode: Site
    first: Call
    later: Call
    shard: Shard


def inference_first(program: Program) -> Iterator[InferenceFirst]:
    """Yield first forwards in inference mode of models with a later forward outside it."""
    for trace in program.traces:
        forwards: dict[Object, list[Call]] = {}
        for call in trace.calls("forward"):
            if isinstance(call.receiver, Object):
                forwards.setdefault(call.receiver, []).append(call)
        for module, calls in forwards.items():
            fact = _fact(program, trace, module, calls)
            if fact is not None:
                yield fact


def _fact(
    program: Program, trace: Trace, module: Object, calls: list[Call]
) -> InferenceFirst | None:
    """Return a module's first forward in inference mode, with a later one that crashes."""
    shard = sharding_of(trace, module) or sharding_of(trace, module, Generation.FSDP1)
    calls = [] if shard is None else [call for call in calls if call.time > shard.time]
    if shard is None or len(calls) < 2:
        return None
    first = calls[0]
    mode = inference_mode(program, first.site)
    if mode is None or _used_before(trace, module, first):
        return None
    for later in calls[1:]:
        happen = follows(trace, first.site, later.site)
        fits = happen and program.together(later.site, shard.site)
        if fits and not _tolerates(program, trace, shard, later):
            return InferenceFirst(mode, first, later, shard)
    return None


def _used_before(trace: Trace, module: Object, first: Call) -> bool:
    """True if other code may have called the model before, or gathered it."""
    whole = (module, *module.ancestors())
    given = any(item.escaped is not None and item.escaped < first.time for item in whole)
    return given or any(call.time < first.time for call in trace.calls(*_GATHERS))


def _tolerates(program: Program, trace: Trace, shard: Shard, later: Call) -> bool:
    """True if a forward works with inference tensors; FSDP2 overwrites them in every forward."""
    if inference_mode(program, later.site) is not None:
        return True
    if shard.generation is Generation.FSDP2:
        return False
    return gradient_mode(program, later.site) in NO_GRADIENTS or is_frozen(trace, shard.module)


# Calls that behave differently under `no_grad`.
_ASKS = ("enable_grad", "set_grad_enabled", "is_inference")


def reports(program: Program) -> Iterator[Report]:
    for fact in inference_first(program):
        mode, first, later = fact.mode, fact.first.site, fact.later.site
        wrap = program.text(fact.shard.site.path, fact.shard.call.func)
        yield Report(
            program.span(mode),
            f"the first forward after `{wrap}` {program.where(fact.shard.site, mode)} runs in "
            "inference mode, which turns the gathered parameters into inference tensors: "
            f"`{program.text(later.path, later.node)}` {program.where(later, mode)} crashes",
            "later forwards outside this mode crash",
            (
                program.evidence(first, "first forward runs here"),
                program.evidence(later, "crashes on inference tensors"),
                *program.conditions(first, fact.shard.site),
            ),
            partial(
                to_no_grad,
                Code.of(program.tree(mode.path)),
                mode.node,
                _safety(program, fact),
            ),
        )


def _safety(program: Program, fact: InferenceFirst) -> Safety:
    """Unsafe if the program may depend on the mode, or does not always shard."""
    asked = any(word in unit.text for unit in program.units for word in _ASKS)
    apart = program.sometimes_without(fact.mode, fact.shard.site)
    return Safety.UNSAFE if asked or apart else Safety.SAFE


@builder
def to_no_grad(code: Code, mode: ir.Node, safety: Safety) -> Fix:
    """Replace a context or decorator that surely turns inference mode on."""
    function = mode.func if isinstance(mode, ir.Call) else mode
    if not isinstance(function, (ir.Name, ir.Attribute)):
        raise NoFixError(
            f"`{code.short(mode)}` does not name `inference_mode` directly; use "
            "`torch.no_grad` by hand"
        )
    imports = Imports(code, mode)
    named = isinstance(function, ir.Name) and qualified(code, function) == INFERENCE_MODE
    if named:
        text = imports.name("torch", "no_grad")
    elif isinstance(function, ir.Attribute):
        text = f"{code.slice(function.value)}.no_grad"
    else:
        raise NoFixError(
            f"`{code.short(mode)}` does not name `inference_mode` directly; use "
            "`torch.no_grad` by hand"
        )
    called = "()" if isinstance(mode, ir.Call) else ""
    edits = [code.edit(mode.start, mode.end, text + called), *imports.edits()]
    if isinstance(function, ir.Name):
        edits += orphans(code, function.id, edits)
    title = "replace `inference_mode` with `no_grad`, whose tensors later forwards can use"
    return Fix(title, safety, tuple(edits))
