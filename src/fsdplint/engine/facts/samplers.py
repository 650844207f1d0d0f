"""Distributed samplers, those of classes of the program that derive from torch's among them."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.values import ClassValue, FunctionValue, Object
from fsdplint.knowledge.data import DISTRIBUTED_SAMPLERS


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
