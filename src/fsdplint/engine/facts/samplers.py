"""Distributed samplers, those of classes of the program that derive from torch's among them."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.state import is_const
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    FunctionValue,
    Object,
    class_names,
    must_be,
)
from fsdplint.knowledge.data import BATCH_SAMPLERS, DISTRIBUTED_SAMPLERS, KEEPS_EPOCH, may_differ


def distributed_samplers(trace: Trace) -> Iterator[tuple[Call, Object]]:
    """Yield each call of the sampler's constructor, and the sampler.

    The call may be in the constructor of a class that derives from it. A class that has an order of
    its own is left out.
    """
    for call in trace.calls(*DISTRIBUTED_SAMPLERS, "__init__"):
        made = call.result if call.receiver is None else call.receiver
        if not isinstance(made, Object) or made.site is None:
            continue
        if isinstance(made.site.node, ir.Call) and not _has_own_order(made):
            yield call, made


def drawn_from(loader: Call) -> tuple[Object | None, str]:
    """What a loader takes its indices from, and by what attributes it leads there.

    That is a sampler, be it one of batches. Torch's own ``BatchSampler`` has one in turn.
    """
    held, where = loader.argument(3, "sampler"), "sampler"
    if held is None or is_const(held, None):
        held, where = loader.argument(4, "batch_sampler"), "batch_sampler"
    if isinstance(held, Object) and not class_names(held.cls).isdisjoint(BATCH_SAMPLERS):
        held = must_be(Arguments(list(held.args), held.keywords).get(0, "sampler"))
        where = f"{where}.sampler"
    return (held if isinstance(held, Object) else None), where


def asks_for_epoch(sampler: Object) -> bool:
    """Whether a sampler may get another order in each epoch by what its own class says."""
    cls = sampler.cls
    if "epoch" in sampler.attrs:
        return True
    if not isinstance(cls, ClassValue):
        return False
    own = [each.node for each in cls.lineage() if isinstance(each, ClassValue)]
    if any(KEEPS_EPOCH.intersection(_identifiers(node)) for node in own):
        return True
    order = cls.lookup("__iter__")
    return isinstance(order, FunctionValue) and may_differ(" ".join(_identifiers(order.function)))


def _has_own_order(sampler: Object) -> bool:
    """Whether the ``__iter__`` of a sampler's class asks no other class for the indices."""
    cls = sampler.cls
    own = cls.lookup("__iter__") if isinstance(cls, ClassValue) else None
    if own is None:
        return False
    return not isinstance(own, FunctionValue) or not any(map(_is_of_base, ir.walk(own.function)))


def _is_of_base(node: ir.Node) -> bool:
    """Whether a node is ``super().__iter__``."""
    if not isinstance(node, ir.Attribute) or not isinstance(node.value, ir.Call):
        return False
    return node.attr == "__iter__" and ir.last_name(node.value.func) == "super"


def _identifiers(whole: ir.Node) -> Iterator[str]:
    for node in ir.walk(whole):
        match node:
            case ir.Name(id=name) | ir.Attribute(attr=name) | ir.Function(name=name):
                yield name
