"""Copies of models that hold FSDP2 units."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard, Trace
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.program import Program
from fsdplint.engine.values import Object
from fsdplint.knowledge.calls import COPIES_MODULE, SUBMODULE_VIEWS, Generation


@dataclass(frozen=True, slots=True)
class Copy:
    """A deep copy of a module.

    Attributes:
        first: the first call that shards the module or a part of it.
        around: the last one before the copy.
    """

    call: Call
    first: Shard
    around: Shard


def copies(program: Program) -> Iterator[Copy]:
    """Deep copies of modules that are surely FSDP2 units, or have some in them."""
    for trace in program.traces:
        for call in trace.calls(*COPIES_MODULE):
            module = call.argument(0, COPIES_MODULE[call.name])
            if isinstance(module, Object) and not _is_picked(program, call):
                shards = [s for s in _units_in(trace, module, call) if _both(program, call, s)]
                if shards:
                    yield Copy(call, shards[0], shards[-1])


def _units_in(trace: Trace, module: Object, call: Call) -> list[Shard]:
    return [
        shard
        for shard in trace.of(Shard)
        if shard.generation is Generation.FSDP2
        and shard.time < call.time
        and (shard.module is module or module in shard.module.ancestors())
    ]


def _is_picked(program: Program, call: Call) -> bool:
    """Whether the module is an element that a function of the project picks.

    A generator that yields some of a model's parts by what they are is not followed part by part.
    """
    for path, node in call.site.frames():
        named = {each.id for each in ir.walk(node) if isinstance(each, ir.Name)}
        for above in program.tree(path).ancestors(node):
            if isinstance(above, ir.For) and _yields(above.iterable):
                targets = (each for each in ir.walk(above.target) if isinstance(each, ir.Name))
                if any(target.id in named for target in targets):
                    return True
    return False


def _yields(iterable: ir.Expr) -> bool:
    """Whether a loop is over what a call gives that is none of Python's and of no module."""
    if not isinstance(iterable, ir.Call):
        return False
    name = ir.last_name(iterable.func)
    return name not in SUBMODULE_VIEWS and not hasattr(builtins, name) and name != "values"


def _both(program: Program, call: Call, shard: Shard) -> bool:
    if exclude_each_other(call.site, shard.site):
        return False
    return program.together(call.site, shard.site)
