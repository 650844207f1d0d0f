"""Training in float16 whose loss nothing scales."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.policies import mixed_precisions
from fsdplint.engine.facts.sharding import runs_alone
from fsdplint.engine.facts.weights import related
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object, Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.calls import BACKWARDS
from fsdplint.knowledge.names import of_torch
from fsdplint.knowledge.policies import FLOAT16
from fsdplint.knowledge.suspicious_words import may_scale
from fsdplint.knowledge.tensors import DTYPES, SCALE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD406",
    summary="a model trains in float16 without loss scaling",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

_SCALES = ("GradScaler", f".{SCALE}")


@dataclass(frozen=True, slots=True)
class Unscaled:
    """A policy by which a model computes in float16, and a backward of an unscaled loss.

    Attributes:
        place: the call that makes the policy.
    """

    shard: Shard
    place: Site
    backward: Call


def unscaled(program: Program) -> Iterator[Unscaled]:
    """Float16 policies of models that are trained, where no path scales the loss."""
    yield from on_every_path(
        (shard.call, _unscaled(program, trace, shard))
        for trace in program.traces
        for shard in trace.of(Shard)
        if _computes_in_float16(shard) is not None and _is_trained(trace, shard)
    )


def _unscaled(program: Program, trace: Trace, shard: Shard) -> Unscaled | None:
    """What is wrong on one path; None if the loss is, or may be, scaled there."""
    policy, backwards = _computes_in_float16(shard), trace.calls(*BACKWARDS)
    called = [name for _, name in trace.called]  # `scaled_dot_product_attention` among them
    if policy is None or policy.site is None or not backwards or runs_alone(trace):
        return None
    if any(name.endswith(_SCALES) or (may_scale(name) and not of_torch(name)) for name in called):
        return None
    if any(_may_be_scaled(program, each) for each in backwards):
        return None
    together = program.together(backwards[0].site, shard.site)
    return Unscaled(shard, policy.site, backwards[0]) if together else None


def _may_be_scaled(program: Program, backward: Call) -> bool:
    """Whether a loss is scaled where its backward is, or is given to a framework, which may."""
    given = backward.name == "backward" and backward.arguments.args
    return bool(given) or may_scale(program.text(backward.site.path, backward.site.node))


def _computes_in_float16(shard: Shard) -> Object | None:
    """The policy of a call, if its computation is in float16."""
    for policy in mixed_precisions(shard):
        dtype = policy.keywords.get("param_dtype") or (*policy.args, None)[0]
        if isinstance(dtype, Symbol) and DTYPES.get(dtype.name) == FLOAT16:
            return policy
    return None


def _is_trained(trace: Trace, shard: Shard) -> bool:
    """Whether an optimizer of a module's parameters is stepped, by itself or by a scaler."""
    return any(
        related(capture.module, shard.module)
        for step in trace.calls("step")
        for each in (step.receiver, *step.arguments.args[:1])
        for capture in (each.captures if isinstance(each, Object) else ())
    )


def reports(program: Program) -> Iterator[Report]:
    for fact in unscaled(program):
        site = fact.shard.site
        yield Report(
            program.span(fact.place),
            f"`{program.text(site.path, fact.shard.call.func)}` "
            f"{program.where(site, fact.place)} computes in float16, and nothing scales the loss: "
            "gradients below 3e-8 become zero and are lost",
            "computes in float16",
            (
                program.evidence(site, "passed here"),
                program.evidence(fact.backward.site, "backward of an unscaled loss"),
            ),
            partial(in_bfloat16, Code.of(program.tree(fact.place.path)), fact.place.node),
        )


@builder
def in_bfloat16(code: Code, made: ir.Node) -> Fix:
    """``param_dtype=torch.float16`` to ``param_dtype=torch.bfloat16``, and the other dtypes."""
    arguments = made.args if isinstance(made, ir.Call) else ()
    values = [each.value for each in arguments if ir.last_name(each.value) in ("float16", "half")]
    if not values:
        raise NoFixError("the dtype is chosen elsewhere; use bfloat16 or a gradient scaler by hand")
    imports = Imports(code, made)
    torch = imports.bound("torch")
    dtype = imports.name("torch", "bfloat16") if torch is None else f"{torch}.bfloat16"
    edits = [code.edit(value.start, value.end, dtype) for value in values]
    return Fix("compute in bfloat16", Safety.UNSAFE, (*edits, *imports.edits()))
