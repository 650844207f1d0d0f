"""Norms that clipping returns, which are DTensors once the parameters are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import runs_alone, unit_of
from fsdplint.engine.interpreter.events import Operation, Shard, Trace
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import CLIPPING, NORM_CALLS
from fsdplint.migrate.modes import may_stay_whole
from fsdplint.migrate.step import Change, Context, Found, attempt
from fsdplint.rules.sharded_reduction_read_locally import combine

_NAMES = NORM_CALLS.union(CLIPPING)
# What makes a number or a plain tensor of it.
_METHODS = frozenset({"item", "full_tensor"})
_FUNCTIONS = frozenset({"float", "isinstance"})


def clipped_norms(context: Context) -> Iterator[Found]:
    """Yield a change for each norm of which the program uses more than its number.

    A DTensor cannot be formatted, and does not mix with plain tensors.
    """
    found: dict[ir.Call, tuple[str, bool]] = {}
    for trace in context.program.traces:
        for each in () if runs_alone(trace) else trace.operations:
            node, shard = each.site.node, _sharding(trace, each)
            if shard is not None and isinstance(node, ir.Call):
                plain = may_stay_whole(context.program, shard)
                found[node] = each.site.path, plain or found.get(node, ("", False))[1]
    for node, (path, plain) in found.items():
        code = Code.of(context.program.tree(path))
        if not _is_number(code, node):
            yield from attempt(code, node, partial(_changed, code, node, may_be_plain=plain))


def _sharding(trace: Trace, each: Operation) -> Shard | None:
    """Return what shards the parameters whose norm an operation takes."""
    for tensor in each.held[0] if each.name in _NAMES and each.held else ():
        unit = unit_of(trace, tensor.module)
        is_fsdp2 = isinstance(unit, Shard) and unit.generation is Generation.FSDP2
        if isinstance(unit, Shard) and is_fsdp2 and unit.time < tensor.time:
            return unit
    return None


def _is_number(code: Code, norm: ir.Expr) -> bool:
    """True if nothing but the number of a norm is used."""
    parent = code.parent(norm)
    match parent:
        case ir.Expression() | ir.NamedExpr():
            return True
        case ir.Attribute(attr=name):
            return name in _METHODS
        case ir.Call(func=ir.Name(id=name)):
            return name in _FUNCTIONS
        case ir.Assign(targets=(ir.Name(id=name),)) if isinstance(norm, ir.Call):
            return all(_is_number(code, each) for each in _reads(code, parent, name))
    return False


def _reads(code: Code, place: ir.Node, name: str) -> Iterator[ir.Name]:
    for node in code.nodes_of(code.scope(place)):
        is_target = isinstance(node, ir.Name) and node in getattr(code.parent(node), "targets", ())
        if isinstance(node, ir.Name) and node.id == name and not is_target:
            yield node


def _changed(code: Code, call: ir.Call, *, may_be_plain: bool) -> Change:
    fix = combine(code, call, may_be_plain=may_be_plain)
    if not isinstance(fix, Fix):
        raise NoFixError(fix.reason)
    what = f"make a plain tensor of what `{code.short(call.func)}` returns"
    return Change(code.span(call), what, fix.edits)
