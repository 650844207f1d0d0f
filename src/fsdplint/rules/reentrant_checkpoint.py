"""FSDP1 units that a reentrant checkpoint gathers three times in a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import is_a, wrapped_classes
from fsdplint.engine.facts.loops import source_of
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    FunctionValue,
    Object,
    Symbol,
    Value,
    may_be,
    reachable,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, builder
from fsdplint.knowledge.calls import ACTIVATION_CHECKPOINT, Generation
from fsdplint.knowledge.fsdp import RESHARDING_STRATEGIES, SHARDING_STRATEGIES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD315",
    summary="a reentrant checkpoint makes FSDP1 gather a unit three times per step",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class ReentrantUnit:
    """A ``call`` that checkpoints a unit of ``shard`` with ``use_reentrant=True``."""

    call: Site
    argument: ir.Argument
    shard: Shard
    forward: Call


def reentrant_units(program: Program) -> Iterator[ReentrantUnit]:
    """Yield reentrant checkpoints around FSDP1 units in the forward of their model."""
    for trace in program.traces:
        if not trace.calls("backward"):
            continue
        for shard in trace.of(Shard):
            if shard.wraps_children and _reshards(shard):
                yield from _in_forwards(program, trace, shard)


def _reshards(shard: Shard) -> bool:
    """True if FSDP1 surely frees the parameters after the forward.

    Under any other strategy a unit is gathered once per step, with any checkpoint.
    """
    if shard.generation is not Generation.FSDP1:
        return False
    if shard.strategy is None:
        return not shard.open
    return all(map(_is_resharding, may_be(shard.strategy)))


def _is_resharding(strategy: Value) -> bool:
    if isinstance(strategy, Const) and strategy.value is None:  # the default, FULL_SHARD
        return True
    name = strategy.name if isinstance(strategy, Symbol) else ""
    return name.removeprefix(SHARDING_STRATEGIES) in RESHARDING_STRATEGIES


def _in_forwards(program: Program, trace: Trace, shard: Shard) -> Iterator[ReentrantUnit]:
    classes = wrapped_classes(shard)
    called = next((c for c in trace.calls("forward") if c.receiver is shard.module), None)
    if classes is None or called is None:
        return
    for owner in (shard.module, *reachable(shard.module)):
        forward = owner.cls.lookup("forward") if isinstance(owner.cls, ClassValue) else None
        if not isinstance(forward, FunctionValue):
            continue
        for function in (forward, *_helpers(owner.cls, forward)):
            path = function.scope.unit.path
            for node in ir.walk(function.function):
                argument = _reentrant(program, path, node)
                if argument is None or not isinstance(node, ir.Call):
                    continue
                unit = _unit(program.tree(path), function.function, owner, node.args[0].value)
                if unit is not None and any(is_a(unit, cls) for cls in classes):
                    yield ReentrantUnit(Site(path, node), argument, shard, called)


def _helpers(cls: Value | None, forward: FunctionValue) -> Iterator[FunctionValue]:
    """Yield the methods of the same class that a forward calls."""
    for node in ir.walk(forward.function):
        if isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
            own = _chain(node.func.value) == []
            found = cls.lookup(node.func.attr) if own and isinstance(cls, ClassValue) else None
            if isinstance(found, FunctionValue):
                yield found


def _reentrant(program: Program, path: str, node: ir.Node) -> ir.Argument | None:
    """Return ``use_reentrant=True`` of a checkpoint."""
    if not isinstance(node, ir.Call) or not node.args or node.args[0].star:
        return None
    given = [a for a in node.args if a.keyword == "use_reentrant"]
    on = given and isinstance(given[0].value, ir.Constant) and given[0].value.value is True
    means = program.project.library_name(path, node.func) if on else ""
    return given[0] if means == ACTIVATION_CHECKPOINT else None


def _unit(tree: Tree, function: ir.Function, owner: Object, node: ir.Expr) -> Object | None:
    """Return the checkpointed part of ``owner``: ``self.part``, or one of ``self.parts``."""
    node = tree.meaning(node)
    if isinstance(node, ir.Attribute):
        return _part(owner, node)
    for loop in ir.walk(function):
        if not isinstance(loop, ir.For) or not isinstance(node, ir.Name):
            continue
        held = source_of(tree, loop, node.id)
        container = _part(owner, held) if isinstance(held, ir.Attribute) else None
        if container is not None:
            return next((m for m in reachable(container) if m.parent is container), None)
    return None


def _part(owner: Object, node: ir.Attribute) -> Object | None:
    """Return the part of ``owner`` that it names ``self.name.name``."""
    part = owner
    for name in _chain(node) or ():
        value = part.attrs.get(name)
        if not isinstance(value, Object):
            return None
        part = value
    return None if part is owner else part


def _chain(node: ir.Expr) -> list[str] | None:
    """Return the names after ``self.``, None for anything else."""
    names = list[str]()
    while isinstance(node, ir.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return names if isinstance(node, ir.Name) and node.id == "self" else None


def reports(program: Program) -> Iterator[Report]:
    for fact in reentrant_units(program):
        call, shard = fact.call, fact.shard.site
        place = Site(call.path, fact.argument)
        yield Report(
            program.span(place),
            f"`{program.text(call.path, call.node)}` makes "
            f"`{program.text(shard.path, fact.shard.call.func)}` ({program.where(shard, call)}) "
            "all-gather the unit three times per step instead of twice, which slows training",
            "one extra all-gather per step",
            (
                program.evidence(shard, "policy makes the checkpointed modules units"),
                program.evidence(fact.forward.site, "model is called here"),
                *program.conditions(shard),
            ),
            partial(
                not_reentrant,
                Code.of(program.tree(call.path)),
                fact.argument,
            ),
        )


@builder
def not_reentrant(code: Code, argument: ir.Argument) -> Fix:
    """Change ``use_reentrant=True`` to ``use_reentrant=False``."""
    edit = code.edit(argument.value.start, argument.value.end, "False")
    return Fix("set `use_reentrant=False`", Safety.UNSAFE, (edit,))
