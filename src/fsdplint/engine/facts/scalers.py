"""Gradient scalers that decide on each rank for itself over the shards of an FSDP1 model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Call, Shard, Trace
from fsdplint.engine.facts.clipping import keeps_whole
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Choice, Const, Object, Symbol, Value, resolved
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import C10D_CALLS
from fsdplint.knowledge.scaling import AUTOCASTS, RECORDS, SCALERS

_BF16 = "torch.bfloat16"


@dataclass(frozen=True, slots=True)
class LocalScaler:
    """A scaler, made at ``made``, that steps the optimizer of FSDP1's shards."""

    made: Site
    name: str
    step: Call
    shard: Shard


def local_scalers(program: Program) -> Iterator[LocalScaler]:
    """Scalers that look for overflows in this rank's part of FSDP1 gradients."""
    for trace in program.traces:
        for step in trace.calls("step"):
            scaler = None if step.receiver is None else resolved(step.receiver)
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
    """Whether the code that steps or reduces gets at the scaler's overflows by itself."""
    sites = (call.site for call in (step, *trace.calls(*C10D_CALLS)))
    paths = {path for site in sites for path, _ in site.frames()}
    return any(word in program.tree(path).text for path in paths for word in RECORDS)


def _is_off(scaler: Object) -> bool:
    assert isinstance(scaler.cls, Symbol)
    position = SCALERS[scaler.cls.name].index("enabled")
    given = scaler.keywords.get("enabled")
    if given is None and len(scaler.args) > position:
        given = scaler.args[position]
    value = None if given is None else resolved(given)
    return isinstance(value, Const) and not value.value


def _stepped(trace: Trace, step: Call) -> Shard | None:
    """What gave the optimizer shards of FSDP1, if each rank has another part of the gradients."""
    optimizer = step.argument(0, "optimizer")
    for capture in optimizer.captures if isinstance(optimizer, Object) else ():
        shard = sharding_of(trace, capture.module, Generation.FSDP1)
        other = sharding_of(trace, capture.module)
        if shard is not None and other is None and not keeps_whole(shard.strategy):
            return shard
    return None


def _in_bf16(trace: Trace, shard: Shard) -> bool:
    """Whether the gradients are bf16's, which overflow no sooner than fp32's."""
    if all(map(_computes_in_bf16, _options(shard.keywords.get("mixed_precision", Const(None))))):
        return True
    casts = (cast.arguments.keywords.get("dtype") for cast in trace.calls(*AUTOCASTS))
    return any(map(_is_bf16, casts))


def _computes_in_bf16(precision: Value) -> bool:
    if not isinstance(precision, Object):
        return False
    return _is_bf16(precision.keywords.get("param_dtype") or (*precision.args, None)[0])


def _is_bf16(value: Value | None) -> bool:
    found = () if value is None else _options(value)
    return bool(found) and all(isinstance(v, Symbol) and v.name == _BF16 for v in found)


def _options(value: Value) -> tuple[Value, ...]:
    return value.options if isinstance(value, Choice) else (resolved(value),)
