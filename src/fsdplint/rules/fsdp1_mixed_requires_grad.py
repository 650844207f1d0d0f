"""FSDP1 units that would flatten frozen and trainable parameters together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.facts.layers import (
    is_a,
    library_class,
    surely_in,
    with_parameters,
    wrapped_classes,
)
from fsdplint.engine.interpreter.events import Call, Shard, Store, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Parameters,
    Taint,
    Value,
    followed,
    taint_of,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.code import Code
from fsdplint.fixes.original_parameters import keep_original
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import ADDS_ADAPTERS, PARAMETER_LAYERS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD215",
    summary="an FSDP1 unit mixes frozen and trainable parameters without `use_orig_params=True`",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


_IGNORING = ("ignored_modules", "ignored_states")


@dataclass(frozen=True, slots=True)
class MixedUnit:
    """A unit of ``shard`` of which ``frozen`` freezes only a part."""

    shard: Shard
    frozen: Site


@dataclass(frozen=True, slots=True)
class _Switch:
    """``requires_grad`` set on ``owner``; ``on`` is None if it differs from part to part."""

    site: Site
    owner: Object
    on: bool | None


def mixed_units(program: Program) -> Iterator[MixedUnit]:
    """Yield FSDP1 calls that raise as they flatten frozen and trainable parameters together."""
    for trace in program.traces:
        shards = trace.of(Shard)
        for shard in shards:
            if shard.generation is not Generation.FSDP1 or shard.keeps_parameters is not False:
                continue
            site = None if _is_unclear(shards, shard) else _frozen(program, trace, shard)
            caught = is_caught(program, shard.site, "ValueError")
            if site is not None and not caught and program.together(site, shard.site):
                yield MixedUnit(shard, site)


def _is_unclear(shards: list[Shard], shard: Shard) -> bool:
    """True if units may be made in another way than by the classes of the modules."""
    module = shard.module
    if any(name in shard.keywords for name in _IGNORING) or len(shard.call.args) > 7:
        return True
    if module.escaped is not None and module.escaped < shard.time:
        return True
    return any(
        other is not shard and (other.module is module or module in other.module.ancestors())
        for other in shards
    )


def _frozen(program: Program, trace: Trace, shard: Shard) -> Site | None:
    """Return the code that freezes only a part of one of the call's units."""
    classes = wrapped_classes(shard)
    if classes is None:
        return None
    adapted = _adapters(trace, shard)
    if adapted is not None:
        return adapted
    switches = [
        switch
        for event in trace.events
        if event.time < shard.time and (switch := _switch(event)) is not None
        if switch.owner is shard.module or shard.module in switch.owner.ancestors()
        if program.together(switch.site, shard.site)
    ]
    if not switches:
        return None
    units: dict[Object, list[_Switch | None]] = {}
    for part in _parts(shard.module, switches, classes):
        unit = _unit(part, shard.module, classes)
        units.setdefault(unit, []).append(_last(part, switches))
    for last in units.values():
        found = _mixture(last, not classes)
        if found is not None:
            return found
    return None


def _mixture(last: list[_Switch | None], single: bool) -> Site | None:
    """Return the code that freezes parts of one unit, if other parts train.

    Args:
        single: there is no other unit, so a partly frozen module is mixed.
    """
    split = next((s for s in last if s is not None and s.on is None), None)
    if single and split is not None:
        return split.site
    frozen = [s for s in last if s is not None and s.on is False]
    trained = [s for s in last if s is None or s.on]
    return frozen[0].site if frozen and trained else None


def _last(part: Object, switches: list[_Switch]) -> _Switch | None:
    """Return the last switch that decides whether ``part`` is trained."""
    whole = (part, *part.ancestors())
    last = None
    for switch in switches:
        inside = switch.owner.parent is part and library_class(part) in PARAMETER_LAYERS
        if switch.owner in whole or inside:
            last = switch  # of a layer, or of its weight
    return last


def _switch(event: object) -> _Switch | None:
    if isinstance(event, Store) and event.name == "requires_grad":
        owner, value = event.owner, event.value
    elif isinstance(event, Call) and event.name == "requires_grad_" and event.receiver is not None:
        owner, value = event.receiver, event.argument(0, "requires_grad") or Const(True)
    else:
        return None
    site, owner = event.site, followed(owner)
    some = any(guard.progress for guard in site.guards)
    if isinstance(owner, Parameters):
        some |= owner.filtered
        owner = owner.module
    if not isinstance(owner, Object) or any(guard.divergent for guard in site.guards):
        return None
    whole = surely_in(owner)
    by_name = not isinstance(value, Const) and bool(taint_of(value) & Taint.ELEMENT)
    if not isinstance(value, Const) and not by_name:
        return None
    on = None if some or by_name else bool(value.value)  # type: ignore[union-attr]  # a constant
    return _Switch(site, whole, on)


def _parts(module: Object, switches: list[_Switch], classes: tuple[Value, ...]) -> list[Object]:
    """Return the parts of ``module`` to compare: its layers, or parts that the program names.

    A model whose class is not analyzed has other parts, too.
    """
    owners = list(dict.fromkeys(switch.owner for switch in switches))
    if not isinstance(module.cls, ClassValue) or module.cls.opaque():
        return [] if classes else list(dict.fromkeys([module, *owners]))
    layers = list(dict.fromkeys(with_parameters(module, ())))
    known = {above for layer in layers for above in (layer, *layer.ancestors())}
    return [*layers, *(o for o in owners if not known & {o, *o.ancestors()} - _around(module))]


def _around(module: Object) -> set[Object]:
    return {module, *module.ancestors()}


def _unit(part: Object, root: Object, classes: tuple[Value, ...]) -> Object:
    for above in (part, *part.ancestors()):
        if above is root or any(is_a(above, cls) for cls in classes):
            return above
    return root


def _adapters(trace: Trace, shard: Shard) -> Site | None:
    """Return the call that added adapters, which train among parameters that it freezes."""
    for call in trace.calls(*ADDS_ADAPTERS):
        if call.time < shard.time and followed(call.result) is shard.module:
            return call.site
    return None


def reports(program: Program) -> Iterator[Report]:
    facts = list(mixed_units(program))
    raising = [fact.shard for fact in facts]
    for fact in facts:
        shard, frozen = fact.shard, fact.frozen
        yield Report(
            program.span(shard.site),
            f"`{program.text(shard.site.path, shard.call.func)}` flattens trainable parameters "
            f"together with those that `{program.text(frozen.path, frozen.node)}` freezes "
            f"{program.where(frozen, shard.site)}: without `use_orig_params=True` the call crashes",
            "the call raises a ValueError",
            (
                program.evidence(frozen, "freezes only part of a unit"),
                *program.conditions(frozen, shard.site),
            ),
            partial(
                keep_original,
                Code.of(program.tree(shard.site.path)),
                shard.call,
                _is_always(program, fact, raising),
            ),
        )


def _is_always(program: Program, fact: MixedUnit, raising: list[Shard]) -> bool:
    """True if all paths of the call are known, and it raises on each."""
    site = fact.shard.site
    every = [each for t in program.traces for each in t.of(Shard) if each.call is fact.shard.call]
    known = program.tree(site.path).is_private() and not program.project.early_stops
    chosen = program.conditions(fact.frozen)
    return known and not chosen and all(any(each is other for other in raising) for each in every)
