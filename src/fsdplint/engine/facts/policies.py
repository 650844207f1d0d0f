"""What sharding calls are given for policies of mixed precision and offloading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.interpreter.decisions import exclude
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Mapping,
    Object,
    Symbol,
    Value,
    class_names,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.policies import (
    ARGUMENTS,
    CPU_OFFLOAD,
    FLOATS,
    MIXED_PRECISIONS,
    PolicyArgument,
)


def mixed_precisions(shard: Shard) -> Iterator[Object]:
    """Yield the policy of mixed precision that a sharding call is given, if it is of its FSDP's."""
    for each in ARGUMENTS:
        value = given(shard, each) if each.generation == shard.generation.value else None
        if isinstance(value, Object) and class_names(value.cls) & MIXED_PRECISIONS:
            yield value


class Misfit(Enum):
    """What a sharding call is given in the place of a policy."""

    FOREIGN = "an object of the other FSDP's class, or that class"
    CLASS = "the class itself"
    DTYPE = "a dtype"
    VALUE = "a flag, text or a dictionary"


@dataclass(frozen=True, slots=True)
class WrongPolicy:
    """A policy that a sharding call cannot use.

    Attributes:
        place: the call that makes it, or else the argument.
        shared: an FSDP of the other kind takes the same object, and rightly.
    """

    shard: Shard
    argument: PolicyArgument
    misfit: Misfit
    place: Site
    shared: bool = False


def wrong_policies(program: Program) -> Iterator[WrongPolicy]:
    rightly = {
        value.site.node
        for _, _, argument, value in _given(program)
        if isinstance(value, Object) and value.site and argument.own in class_names(value.cls)
    }
    for trace, shard, argument, value in _given(program):
        misfit = _misfit(argument, value)
        if misfit is None or is_caught(program, shard.site, "AttributeError"):
            continue
        made = value.site if isinstance(value, Object) else None
        place = made if made and isinstance(made.node, ir.Call) else _argument(shard, argument)
        if _is_left_out(place, trace, shard):
            continue
        shared = misfit is Misfit.FOREIGN and place.node in rightly
        yield WrongPolicy(shard, argument, misfit, place, shared)


def _given(program: Program) -> Iterator[tuple[Trace, Shard, PolicyArgument, Value]]:
    for trace in program.traces:
        for shard in trace.of(Shard):
            for argument in ARGUMENTS:
                value = given(shard, argument)
                if argument.generation == shard.generation.value and value is not None:
                    yield trace, shard, argument, value


def given(shard: Shard, argument: PolicyArgument) -> Value | None:
    """What the call gives for the policy."""
    value = shard.keywords.get(argument.keyword)
    if value is None and 0 <= argument.position < len(shard.positional):
        value = shard.positional[argument.position]
    return followed(value)


def _is_left_out(place: Site, trace: Trace, shard: Shard) -> bool:
    """Whether a place is in an arm that no run takes on the way to the call.

    A path may follow both arms of a branch, and decide on the same option in a later one.
    """
    decided = [*trace.decisions, *((guard.key, guard.taken) for guard in shard.site.guards)]
    return any(exclude((g.key, g.taken), each) for g in place.guards for each in decided)


def _argument(shard: Shard, argument: PolicyArgument) -> Site:
    """The argument where it stands at the call, else the call."""
    site = shard.site
    for each in shard.call.args:
        if each.keyword == argument.keyword:
            return Site(site.path, each.value, site.calls, site.guards)
    return site


def _misfit(argument: PolicyArgument, value: Value) -> Misfit | None:
    if isinstance(value, Object):
        return _wrong_object(argument, value)
    if isinstance(value, Symbol):
        package, _, last = value.name.rpartition(".")
        if value.name in (argument.own, argument.foreign):
            return Misfit.CLASS if value.name == argument.own else Misfit.FOREIGN
        return Misfit.DTYPE if package == "torch" and last in FLOATS else None
    if isinstance(value, Const):
        is_flag = value.value or (argument.keyword == "mp_policy" and value.value is not None)
        return Misfit.VALUE if is_flag else None
    filled = isinstance(value, Mapping) and (value.items or value.rest)
    return Misfit.VALUE if filled else None


def _wrong_object(argument: PolicyArgument, value: Object) -> Misfit | None:
    if argument.foreign not in class_names(value.cls):
        return None
    if argument.foreign == CPU_OFFLOAD:
        flag = value.args[0] if value.args else value.keywords.get("offload_params")
        off = flag is None or (isinstance(flag, Const) and not flag.value)
        return None if off else Misfit.FOREIGN
    return Misfit.FOREIGN
