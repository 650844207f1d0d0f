"""Gradient scalers that check only the local shards of an FSDP1 model for overflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.clipping import keeps_whole
from fsdplint.engine.facts.sharding import runs_alone, sharding_of
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Symbol,
    Value,
    followed,
    may_be,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import renamed
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports, orphans
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import C10D_CALLS
from fsdplint.knowledge.policies import BFLOAT16
from fsdplint.knowledge.scaling import AUTOCASTS, RECORDS, SCALERS, SHARDED_SCALER, asks_for_class
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD314",
    summary="`GradScaler` checks only the local shards of an FSDP1 model for overflows",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class LocalScaler:
    """A scaler, made at ``made``, that steps an optimizer of FSDP1's shards."""

    made: Site
    name: str
    step: Call
    shard: Shard


def local_scalers(program: Program) -> Iterator[LocalScaler]:
    """Yield scalers that check only this rank's shards of FSDP1 gradients for overflows."""
    for trace in program.traces:
        for step in () if runs_alone(trace) else trace.calls("step"):
            scaler = followed(step.receiver)
            if not isinstance(scaler, Object) or not isinstance(scaler.cls, Symbol):
                continue
            if scaler.cls.name not in SCALERS or scaler.site is None or _is_off(scaler):
                continue
            shard = _stepped(trace, step)
            if shard is None or _in_bf16(trace, shard) or _is_shared(program, trace, step):
                continue
            if program.together(step.site, shard.site):
                yield LocalScaler(scaler.site, scaler.cls.name, step, shard)


def _is_shared(program: Program, trace: Trace, step: Call) -> bool:
    """True if the code that steps or reduces reads the scaler's overflows itself."""
    sites = (call.site for call in (step, *trace.calls(*C10D_CALLS)))
    paths = {path for site in sites for path, _ in site.frames()}
    return any(word in program.tree(path).text for path in paths for word in RECORDS)


def _is_off(scaler: Object) -> bool:
    assert isinstance(scaler.cls, Symbol)
    position = SCALERS[scaler.cls.name].index("enabled")
    given = scaler.keywords.get("enabled")
    if given is None and len(scaler.args) > position:
        given = scaler.args[position]
    value = must_be(given)
    return isinstance(value, Const) and not value.value


def _stepped(trace: Trace, step: Call) -> Shard | None:
    """Return the FSDP1 call that gave the optimizer its shards, if ranks hold different ones."""
    optimizer = step.argument(0, "optimizer")
    for capture in optimizer.captures if isinstance(optimizer, Object) else ():
        shard = sharding_of(trace, capture.module, Generation.FSDP1)
        other = sharding_of(trace, capture.module)
        if shard is not None and other is None and not keeps_whole(shard.strategy):
            return shard
    return None


def _in_bf16(trace: Trace, shard: Shard) -> bool:
    """True if the gradients are bf16, which overflows no sooner than fp32."""
    if all(map(_computes_in_bf16, may_be(shard.keywords.get("mixed_precision", Const(None))))):
        return True
    casts = (cast.arguments.keywords.get("dtype") for cast in trace.calls(*AUTOCASTS))
    return any(map(_is_bf16, casts))


def _computes_in_bf16(precision: Value) -> bool:
    if not isinstance(precision, Object):
        return False
    return _is_bf16(precision.keywords.get("param_dtype") or (*precision.args, None)[0])


def _is_bf16(value: Value | None) -> bool:
    found = may_be(value)
    return bool(found) and all(isinstance(v, Symbol) and v.name == BFLOAT16 for v in found)


def reports(program: Program) -> Iterator[Report]:
    for fact in local_scalers(program):
        made, shard = fact.made, fact.shard.site
        yield Report(
            program.span(made),
            f"`{program.text(made.path, made.node)}` checks only this rank's gradient shards for "
            f"overflows (`{program.text(shard.path, fact.shard.call.func)}` wraps the model "
            f"{program.where(shard, made)}): a rank may skip a step alone, leaving the "
            "weights inconsistent",
            "each rank decides alone to skip",
            (
                program.evidence(shard, "wrapped by FSDP1 here"),
                program.evidence(fact.step.site, "skips or steps on this rank alone"),
                *program.conditions(made, shard),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalScaler) -> Fix | Declined:
    if program.sometimes_without(fact.made, fact.shard.site):
        return Declined(
            "the model is not always wrapped, and `ShardedGradScaler` waits for all ranks; use it "
            "by hand where the model is wrapped"
        )
    texts = (unit.text for unit in program.units)
    return shard_scaler(
        Code.of(program.tree(fact.made.path)),
        fact.made.node,
        fact.name,
        _is_by_all(program, fact) and not asks_for_class(texts),
    )


def _is_by_all(program: Program, fact: LocalScaler) -> bool:
    """True if ``step`` and ``unscale_``, where all ranks wait, depend on no test."""
    known = {(g.key, g.taken) for g in (*fact.made.guards, *fact.shard.site.guards)}
    tests = [g for g in fact.step.site.guards if (g.key, g.taken) not in known]
    step = set(program.tree(fact.step.site.path).ancestors(fact.step.site.node))
    for tree in program.trees_with("unscale_"):
        for node in tree.walk("unscale_"):
            if isinstance(node, ir.Attribute) and node.attr == "unscale_":
                around = set(tree.ancestors(node)) - step
                if any(isinstance(each, (ir.If, ir.Conditional, ir.BoolOp)) for each in around):
                    return False
    return all(guard.progress and not guard.divergent for guard in tests)


_BY_HAND = "use `ShardedGradScaler` by hand"


@builder
def shard_scaler(code: Code, made: ir.Node, name: str, certain: bool) -> Fix:
    """Change ``GradScaler("cuda", 1024.0)`` to ``ShardedGradScaler("cuda", init_scale=1024.0)``.

    Args:
        made: the construction.
        name: the canonical name of its class.
        certain: no code depends on the class, and all ranks step together.
    """
    if not isinstance(made, ir.Call) or any(argument.star for argument in made.args):
        raise NoFixError(f"the arguments of the scaler are not all written out; {_BY_HAND}")
    imports = Imports(code, made)
    module, _, sharded = SHARDED_SCALER.rpartition(".")
    edits = [code.edit(made.func.start, made.func.end, imports.name(module, sharded))]
    if any(each.keyword not in (None, *SCALERS[name]) for each in made.args):
        raise NoFixError(f"`{code.short(made)}` does not match torch's signature; {_BY_HAND}")
    for parameter, argument in zip(SCALERS[name], made.args, strict=False):
        if argument.keyword is None and parameter != "device":
            edits.append(renamed(code, argument, parameter))
    edits += imports.edits()
    if isinstance(made.func, ir.Name):
        edits += orphans(code, made.func.id, edits)
    safety = Safety.SAFE if certain else Safety.UNSAFE
    return Fix(
        "use `ShardedGradScaler`, which checks all ranks for overflows", safety, tuple(edits)
    )
