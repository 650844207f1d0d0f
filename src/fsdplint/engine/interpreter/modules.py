"""Modules: whether an object is one, and how it is known to be sharded."""

from __future__ import annotations

from fsdplint.engine.interpreter.events import Shard, Sharding
from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.interpreter.values import Object, Parameters, class_names
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import AVERAGED_MODEL, PARAMETER
from fsdplint.knowledge.names import MODULE, NN

# How a layer's parameters are reached from it.
_PARAMETER_STEPS = (".weight", ".bias")


def is_parameter(value: Object) -> bool:
    """True if an object is a parameter of its parent: a layer's, or one that a class registers."""
    return value.step in _PARAMETER_STEPS or PARAMETER in class_names(value.cls)


def is_module(value: Object) -> bool:
    """True if an object is known to be a module: by class, or because it was sharded."""
    if value.sharded or MODULE in class_names(value.cls) or is_average(value):
        return True
    return any(
        isinstance(cls, str) and (cls.startswith(f"{NN}.") or "PreTrainedModel" in cls)
        for cls in class_names(value.cls)
    )


def is_average(value: Object) -> bool:
    """True if an object is a module that averages the weights of another one."""
    return AVERAGED_MODEL in class_names(value.cls)


def is_unit(value: Object) -> bool:
    return value.generation() is Generation.FSDP2


def holds_fsdp2(state: PathState, module: Object) -> bool:
    """True if some parameter of a module is surely a DTensor shard of FSDP2's."""
    if is_unit(module):
        return True
    if module.sharded:
        return False
    if any(is_unit(above) for above in module.ancestors()):
        return True
    events = state.trace.events
    return any(
        isinstance(event, Sharding)
        and event.generation is Generation.FSDP2
        and module in event.module.ancestors()
        and is_module(module)
        for event in events
    )


def has_fsdp1(state: PathState, module: Object) -> bool:
    """True if FSDP1 wraps a module or a part of it."""
    return any(
        isinstance(event, Sharding)
        and event.generation is Generation.FSDP1
        and module in (event.module, *event.module.ancestors())
        for event in state.trace.events
    )


def is_in_unit(state: PathState, value: Object) -> bool:
    """True if a value is a part of an FSDP2 unit in which FSDP1 wraps nothing."""
    if value.sharded:
        return False
    return any(is_unit(whole) and not has_fsdp1(state, whole) for whole in value.ancestors())


def cut_by_fsdp1(state: PathState, captured: Parameters) -> bool:
    """True if FSDP1 surely flattens and splits some of the parameters that were captured."""
    return any(
        event.cuts_flat and cuts(event, captured)
        for event in state.trace.events
        if isinstance(event, Shard)
    )


def cuts(shard: Shard, captured: Parameters) -> bool:
    """True if a sharding call is on captured parameters: on their module, around or inside it."""
    module = captured.module
    inside = module in shard.module.ancestors() and is_module(module) and not captured.filtered
    return inside or shard.module in (module, *module.ancestors())
