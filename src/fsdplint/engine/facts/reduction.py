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
    """Calls whose policy has gradients added up in a low precision, whichever one they get."""
    policies = list(_policies(program))
    chosen = {shard.call for shard, policy in policies if _low(policy) is None}
    for shard, policy in policies:
        dtype, place = _low(policy), policy.site
        if dtype is not None and place is not None and shard.call not in chosen:
            yield LowReduction(shard, place, dtype)


def _policies(program: Program) -> Iterator[tuple[Shard, Object]]:
    """The precisions that sharding calls are given, with the call, on every path."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            for argument in ARGUMENTS:
                value = given(shard, argument)
                if argument.generation == shard.generation.value and isinstance(value, Object):
                    if class_names(value.cls) & {MIXED_PRECISION, MIXED_PRECISION_POLICY}:
                        yield shard, value


def _low(policy: Object) -> str | None:
    """The low precision that a policy has gradients added up in, None if that is not known."""
    fields = {**dict(zip(_FIELDS, policy.args, strict=False)), **policy.keywords}
    reduced, made = fields.get("reduce_dtype"), policy.site
    called = made is not None and isinstance(made.node, ir.Call)
    low = isinstance(reduced, Symbol) and reduced.name in LOW_PRECISIONS
    if called and low and isinstance(reduced, Symbol):
        return reduced.name.rpartition(".")[2]
    return None
