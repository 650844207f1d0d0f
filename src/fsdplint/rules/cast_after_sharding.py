"""Sharded models whose dtype is changed after their first forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.branches import follows
from fsdplint.engine.facts.layers import library_class
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.values import Object, Symbol, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.move import before_sharding
from fsdplint.knowledge.calls import CASTS, Generation
from fsdplint.knowledge.policies import FULL_PRECISION
from fsdplint.knowledge.tensors import DTYPES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD214",
    summary="a sharded model is cast to another dtype after its first forward",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_GIVEN_DTYPE = ("dtype", "torch_dtype")
# Arguments that make a model compute in another dtype than its parameters'.
_POLICIES = ("mp_policy", "mixed_precision")


@dataclass(frozen=True, slots=True)
class LateCast:
    """A ``cast`` between the forwards ``before`` and ``after``, which need the same dtype.

    Attributes:
        first: the first call that shards the model or a part of it.
    """

    cast: Call
    dtype: str
    shard: Shard
    first: Shard
    before: Call
    after: Call


def late_casts(program: Program) -> Iterator[LateCast]:
    """Yield casts of sharded models to another dtype between two forwards."""
    for trace in program.traces:
        for cast in trace.calls(*CASTS):
            module = cast.receiver
            if isinstance(module, Object) and _dtype(cast) not in ("", "?"):
                fact = _fact(program, trace, module, cast)
                if fact is not None:
                    yield fact


def _fact(program: Program, trace: Trace, module: Object, cast: Call) -> LateCast | None:
    """Return the cast and the forwards around it, if it changes the dtype of the first one."""
    shard = sharding_of(trace, module) or sharding_of(trace, module, Generation.FSDP1)
    if shard is None or shard.module is not module or _has_policy(trace, module):
        return None
    if module.escaped is not None and module.escaped < cast.time:
        return None
    forwards = [c for c in trace.calls("forward") if c.receiver is module and c.time > shard.time]
    before = [c for c in forwards if c.time < cast.time]
    dtype = _dtype(cast)
    if not before or dtype == _settled(trace, module, cast, before[0]):
        return None
    after = next((c for c in forwards if c.time > cast.time), None)
    if after is None or _cast_again(trace, module, cast, after):
        return None
    sure = follows(trace, before[0].site, cast.site) and follows(trace, cast.site, after.site)
    if not sure or not program.together(cast.site, shard.site):
        return None
    units = [s for s in trace.of(Shard) if module in (s.module, *s.module.ancestors())]
    return LateCast(cast, dtype, shard, units[0], before[0], after)


def _has_policy(trace: Trace, module: Object) -> bool:
    return any(
        name in shard.keywords
        for shard in trace.of(Shard)
        if module in (shard.module, *shard.module.ancestors())
        for name in _POLICIES
    )


def _settled(trace: Trace, module: Object, cast: Call, first: Call) -> str:
    """Return a model's dtype in its first forward; that of the cast if it is not known."""
    given = any(name in module.keywords for name in _GIVEN_DTYPE)
    if given or module.cls is None or library_class(module).startswith("transformers."):
        return _dtype(cast)
    whole = (module, *module.ancestors())
    dtype = FULL_PRECISION
    for other in trace.calls(*CASTS):
        if other.time < first.time and other.receiver in whole:
            found = _dtype(other)
            dtype = _dtype(cast) if found == "?" else found or dtype
    return dtype


def _cast_again(trace: Trace, module: Object, cast: Call, after: Call) -> bool:
    return any(
        other.receiver is module and cast.time < other.time < after.time and _dtype(other)
        for other in trace.calls(*CASTS)
    )


def _dtype(cast: Call) -> str:
    """Return the dtype that a call casts to: "" if it casts to none, "?" if it is unknown."""
    fixed = CASTS[cast.name]
    if fixed is not None:
        return fixed
    values = [followed(value) for value in cast.arguments.values()]
    found = [v.name for v in values if isinstance(v, Symbol) and v.name in DTYPES]
    if found:
        return DTYPES[found[0]]
    given = cast.arguments.keywords.get("dtype")
    unknown = given is not None or any(isinstance(v, Object) and _is_open(v) for v in values)
    return "?" if unknown else ""


def _is_open(value: Object) -> bool:
    """True if a value may be a dtype."""
    return "device" not in value.path() and not isinstance(value.cls, Symbol)


def reports(program: Program) -> Iterator[Report]:
    for fact in late_casts(program):
        cast, before, after = fact.cast.site, fact.before.site, fact.after.site
        yield Report(
            program.span(cast),
            f"`{program.text(cast.path, cast.node)}` casts a sharded model, but the first forward "
            f"{program.where(before, cast)} already fixed the dtype of FSDP's buffers: the next "
            "forward crashes",
            "FSDP's buffers keep the old dtype",
            (
                program.evidence(fact.shard.site, "sharded here"),
                program.evidence(before, "first forward"),
                program.evidence(after, "this forward crashes"),
                *program.conditions(cast, fact.shard.site),
            ),
            partial(before_sharding, program, cast, fact.first),
        )
