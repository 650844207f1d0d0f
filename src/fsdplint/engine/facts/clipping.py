"""Norms of the local gradient shards of FSDP1 models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import is_summoned, runs_alone, unit_of
from fsdplint.engine.interpreter.events import Call, Shard, Sharding, Trace
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    Symbol,
    Tensor,
    Value,
    contained,
    may_be,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import CLIPPING, GET_TOTAL_NORM
from fsdplint.knowledge.tensors import INFINITIES

_NORMS = (*CLIPPING, GET_TOTAL_NORM)


@dataclass(frozen=True, slots=True)
class LocalNorm:
    """A call that computes the norm of FSDP1 gradients from local shards.

    Attributes:
        of_root: the gradients are those of the root FSDP1 unit that ``shard`` makes, and no others.
    """

    call: Call
    shard: Sharding
    of_root: bool

    @property
    def only_measures(self) -> bool:
        """True if the call only measures the norm, because its bound is infinite."""
        bound = self.call.argument(1, "max_norm")
        number = bound.value if isinstance(bound, Const) else None
        endless = isinstance(number, float) and math.isinf(number)
        return endless or (isinstance(bound, Symbol) and bound.name in INFINITIES)


def local_norms(program: Program) -> Iterator[LocalNorm]:
    """Yield calls of torch's clipping functions on the gradient shards of an FSDP1 model."""
    for trace in program.traces:
        for call in () if runs_alone(trace) else trace.calls(*_NORMS):
            fact = _local(program, trace, call)
            if fact is None or is_summoned(program, call.site):
                continue
            if not any(_asks_for_whole(program, guard) for guard in call.site.guards):
                yield fact


def _asks_for_whole(program: Program, guard: Guard) -> bool:
    """True if a branch tests for units under NO_SHARD, as FSDP1's own method does."""
    test = guard.test
    function = program.tree(guard.path).function(test)
    values = [test]
    if isinstance(test, ir.Name) and function is not None:
        values += [
            node.value
            for node in ir.walk(function)
            if isinstance(node, ir.Assign)
            and any(isinstance(each, ir.Name) and each.id == test.id for each in node.targets)
        ]
    texts = (program.text(guard.path, value) for value in values)
    return any("uses_sharded_strategy" in text or "NO_SHARD" in text for text in texts)


def _local(program: Program, trace: Trace, call: Call) -> LocalNorm | None:
    given = call.argument(0, "tensors" if call.name.endswith("get_total_norm") else "parameters")
    taken = [] if given is None else list(_taken(given))
    for parameters in taken:
        module = parameters.module
        shard = unit_of(trace, module, Generation.FSDP1)
        if shard is None or shard.time > parameters.time or unit_of(trace, module) is not None:
            continue
        if not keeps_whole(shard.strategy) and program.together(call.site, shard.site):
            own = isinstance(shard, Shard) and shard.module is module
            root = own and not any(above.sharded for above in module.ancestors())
            return LocalNorm(call, shard, root and len(taken) == 1)
    return None


def _taken(given: Value) -> Iterator[Parameters | Tensor]:
    """Return the parameters in a value, including those in an optimizer's groups."""
    for item in contained(given):
        if isinstance(item, (Parameters, Tensor)):
            yield item
        for above in item.ancestors() if isinstance(item, Object) else ():
            yield from above.captures


def keeps_whole(strategy: Value | None) -> bool:
    """True if every rank holds the unsharded gradient, which NO_SHARD reduces like DDP."""
    options = may_be(strategy)
    whole = [o for o in options if isinstance(o, Symbol) and o.name.endswith(".NO_SHARD")]
    return 0 < len(whole) == len(options)
