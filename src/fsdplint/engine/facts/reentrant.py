"""FSDP1 units that a reentrant checkpoint runs, and gathers once more than need be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.facts.wrapping import is_a, wrapped_classes
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import ClassValue, FunctionValue, Object, Value, reachable
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import canonical

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


@dataclass(frozen=True, slots=True)
class ReentrantUnit:
    """``call`` checkpoints a unit that ``shard`` makes, by ``use_reentrant=True``."""

    call: Site
    argument: ir.Argument
    shard: Shard


def reentrant_units(program: Program) -> Iterator[ReentrantUnit]:
    """Reentrant checkpoints around FSDP1 units in the forward of the model that holds them."""
    for trace in program.traces:
        if not trace.calls("backward"):
            continue
        for shard in trace.of(Shard):
            if shard.generation is Generation.FSDP1 and shard.wraps_children:
                yield from _in_forwards(program, trace, shard)


def _in_forwards(program: Program, trace: Trace, shard: Shard) -> Iterator[ReentrantUnit]:
    classes = wrapped_classes(shard)
    called = any(c.receiver is shard.module for c in trace.calls("forward"))
    for owner in (shard.module, *reachable(shard.module)) if classes and called else ():
        forward = owner.cls.lookup("forward") if isinstance(owner.cls, ClassValue) else None
        if not isinstance(forward, FunctionValue):
            continue
        path = forward.scope.unit.path
        for node in ir.walk(forward.function):
            argument = _reentrant(program, path, node)
            if argument is None or not isinstance(node, ir.Call):
                continue
            unit = _unit(forward.function, owner, node.args[0].value)
            if unit is not None and any(is_a(unit, cls) for cls in classes or ()):
                yield ReentrantUnit(Site(path, node), argument, shard)


def _reentrant(program: Program, path: str, node: ir.Node) -> ir.Argument | None:
    """``use_reentrant=True`` of a checkpoint."""
    if not isinstance(node, ir.Call) or not node.args or node.args[0].star:
        return None
    given = [a for a in node.args if a.keyword == "use_reentrant"]
    on = given and isinstance(given[0].value, ir.Constant) and given[0].value.value is True
    names, function = list[str](), node.func
    while isinstance(function, ir.Attribute):
        names.insert(0, function.attr)
        function = function.value
    if not on or not isinstance(function, ir.Name):
        return None
    module, level, member = program.project.bindings(Path(path)).get(function.id, ("", 0, None))
    full = ".".join(filter(None, (module, member, *names)))
    return given[0] if level == 0 and canonical(full) == _CHECKPOINT else None


def _unit(function: ir.Function, owner: Object, node: ir.Expr) -> Object | None:
    """What part of ``owner`` is checkpointed: ``self.part``, or an element of ``self.parts``."""
    if isinstance(node, ir.Attribute) and isinstance(node.value, ir.Name):
        return _part(owner, node.attr) if node.value.id == "self" else None
    for loop in ir.walk(function):
        if not isinstance(loop, ir.For) or not isinstance(node, ir.Name):
            continue
        bound = {n.id for n in ir.walk(loop.target) if isinstance(n, ir.Name)}
        held = [n.attr for n in ir.walk(loop.iterable) if isinstance(n, ir.Attribute)]
        container = _part(owner, held[0]) if node.id in bound and held else None
        if container is not None:
            return next((m for m in reachable(container) if m.parent is container), None)
    return None


def _part(owner: Object, name: str) -> Object | None:
    value: Value | None = owner.attrs.get(name)
    return value if isinstance(value, Object) else None
