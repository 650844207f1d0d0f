"""In which precision gradients are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Shard
from fsdplint.engine.facts.policies import given
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Object, Symbol, class_names
from fsdplint.knowledge.policies import (
    ARGUMENTS,
    LOW_PRECISIONS,
    MIXED_PRECISION,
    MIXED_PRECISION_POLICY,
)

_FIELDS = ("param_dtype", "reduce_dtype")  # of both classes, in this order


@dataclass(frozen=True, slots=True)
class LowReduction:
    """A policy that has the gradients of several ranks added up in a low precision.

    Attributes:
        place: the call that makes the policy.
    """

    shard: Shard
    place: Site
    dtype: str


def low_reductions(program: Program) -> Iterator[LowReduction]:
    for trace in program.traces:
        for shard in trace.of(Shard):
            for argument in ARGUMENTS:
                value = given(shard, argument)
                if argument.generation == shard.generation.value and isinstance(value, Object):
                    yield from _low(shard, value)


def _low(shard: Shard, policy: Object) -> Iterator[LowReduction]:
    known = class_names(policy.cls) & {MIXED_PRECISION, MIXED_PRECISION_POLICY}
    fields = {**dict(zip(_FIELDS, policy.args, strict=False)), **policy.keywords}
    reduced, made = fields.get("reduce_dtype"), policy.site
    called = made is not None and isinstance(made.node, ir.Call)
    low = isinstance(reduced, Symbol) and reduced.name in LOW_PRECISIONS
    if known and made is not None and called and low and isinstance(reduced, Symbol):
        yield LowReduction(shard, made, reduced.name.rpartition(".")[2])
