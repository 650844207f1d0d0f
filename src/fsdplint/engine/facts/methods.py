"""Methods of a sharded module, other than forward, that use its parameters without its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call, MethodCall, Shard, Trace
from fsdplint.engine.layers import library_class, surely_in, with_parameters
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import ClassValue, Const, FunctionValue, Object, contained, resolved
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import PARAMETER, PARAMETER_LAYERS, TAKES_WEIGHTS


@dataclass(frozen=True, slots=True)
class BypassingMethod:
    """A method of a unit that was called without the unit's hooks.

    Attributes:
        use: where it uses parameters of the unit.
        part: the layer or parameter that is used there.
        everywhere: whether all modules that ``shard`` is on have the method.
        nested: what runs under the hooks of a unit that reshards behind them calls it as well.
    """

    method: MethodCall
    shard: Shard
    use: Site
    part: Object
    everywhere: bool
    nested: bool


def bypassing_methods(program: Program) -> Iterator[BypassingMethod]:
    """Calls of a unit's methods that use the unit's own parameters, past its hooks."""
    for trace in program.traces:
        for method in trace.of(MethodCall):
            inner = method.hooked or _in_another(trace, method)
            shard = None if inner else _sharding(trace, method)
            if shard is None or not program.together(method.site, shard.site):
                continue
            if _known_elsewhere(trace, shard, method) or _gathered(trace, shard, method):
                continue
            for use, part in _uses(trace, method):
                everywhere = _has_method(program, shard, method.name)
                nested = _may_reshard(program, shard) and _runs_hooked(method.module, method.name)
                yield BypassingMethod(method, shard, use, part, everywhere, nested)
                break


def _in_another(trace: Trace, method: MethodCall) -> bool:
    """Whether another method of the same module leads here, which is the one to register."""
    around = method.site.calls
    frames = [m.site.frames() for m in trace.of(MethodCall) if m.module is method.module]
    return any(around[: len(each)] == each for each in frames)


def _sharding(trace: Trace, method: MethodCall) -> Shard | None:
    """The call that made the module a unit with all parameters that no inner unit has."""
    own = [s for s in trace.of(Shard) if s.module is method.module and s.time < method.time]
    if not own or (own[-1].generation is Generation.FSDP1 and own[-1].wraps_children is not False):
        return None
    return own[-1]


def _known_elsewhere(trace: Trace, shard: Shard, method: MethodCall) -> bool:
    """Whether code that is not read may have registered the method or gathered the parameters."""
    cls = method.module.cls
    if isinstance(cls, ClassValue) and cls.opaque():
        return True
    return any(
        shard.time < escape.time < method.time and method.module in escape.objects
        for escape in trace.escapes
    )


def _gathered(trace: Trace, shard: Shard, method: MethodCall) -> bool:
    """Whether the unit's parameters are whole when the method begins.

    A root keeps them so from its forward to its backward or ``reshard()``.
    """
    unit = method.module
    own = (unit, *unit.ancestors())
    is_root = not any(s.module in own[1:] for s in trace.of(Shard))
    keeps = is_root and not _reshards(shard)
    whole = False
    for call in trace.calls("forward", "backward", "unshard", "reshard"):
        if call.time > method.time:
            break
        if call.name == "backward":
            whole = False
        elif call.receiver in own:
            whole = call.name == "unshard" or (call.name == "forward" and keeps)
    return whole


def _reshards(shard: Shard) -> bool:
    value = shard.keywords.get("reshard_after_forward")
    inner = None if value is None else resolved(value)
    return isinstance(inner, Const) and bool(inner.value)


# What it uses


def _uses(trace: Trace, method: MethodCall) -> Iterator[tuple[Site, Object]]:
    """Where the method's body uses parameters that its unit holds itself."""
    inside = method.site.frames()
    hooked = [
        call.site.frames() for call in trace.calls("forward") if call.receiver is method.module
    ]
    shards = [s for s in trace.of(Shard) if s.time < method.time and s.module is not method.module]
    units = {surely_in(s.module) for s in shards}
    for call in trace.calls("forward", "unshard", *TAKES_WEIGHTS):
        frames = call.site.frames()
        if call.time < method.time or frames[: len(inside)] != inside:
            continue
        if call.name == "unshard":
            return
        if not any(frames[: len(each)] == each for each in hooked):
            part = next(_held(call, method.module, units), None)
            if part is not None:
                yield call.site, part


def _held(call: Call, unit: Object, units: set[Object]) -> Iterator[Object]:
    """What of a call's module, or of the weights it is given, belongs to ``unit`` itself."""
    if isinstance(call.receiver, Object):
        module = call.receiver
        if _within(module, unit, units):
            yield from with_parameters(module, units)
        return
    for value in call.arguments.values():
        for item in contained(value):
            if isinstance(item, Object) and _is_weight(item) and _within(item, unit, units):
                yield item


def _is_weight(item: Object) -> bool:
    if item.step in (".weight", ".bias") and item.parent is not None:
        return library_class(item.parent) in PARAMETER_LAYERS
    return library_class(item) == PARAMETER


def _within(item: Object, unit: Object, units: set[Object]) -> bool:
    """Whether the innermost unit around ``item``, itself included, is ``unit``."""
    for module in (item, *item.ancestors()):
        if module is unit:
            return item is not unit
        if module in units:
            return False
    return False


# Where it can be registered


def _has_method(program: Program, shard: Shard, name: str) -> bool:
    """Whether every module that the sharding call is on is known to have the method."""
    modules = [
        each.module
        for trace in program.traces
        for each in trace.of(Shard)
        if each.call is shard.call
    ]
    return all(isinstance(m.cls, ClassValue) and m.cls.lookup(name) is not None for m in modules)


def _may_reshard(program: Program, shard: Shard) -> bool:
    """Whether a unit of the sharding call may leave its parameters sharded behind a forward."""
    for trace in program.traces:
        shards = trace.of(Shard)
        for each in shards:
            if each.call is not shard.call:
                continue
            given = each.keywords.get("reshard_after_forward", Const(None))
            above = [*each.module.ancestors()]
            inner = any(other.module in above for other in shards)
            if inner or not isinstance(given, Const) or given.value not in (None, False):
                return True
    return False


def _runs_hooked(module: Object, name: str) -> bool:
    """Whether ``forward``, or a method that is registered, leads to the method of a name."""
    queue = ["forward", *sorted(module.hooked_methods - {name})]
    cls = module.cls
    for each in queue:
        method = cls.lookup(each) if isinstance(cls, ClassValue) else None
        for node in ir.walk(method.function) if isinstance(method, FunctionValue) else ():
            own = isinstance(node, ir.Attribute) and isinstance(node.value, ir.Name)
            if own and node.attr not in queue:  # type: ignore[attr-defined]  # an attribute
                queue.append(node.attr)  # type: ignore[attr-defined]  # an attribute
    return name in queue
