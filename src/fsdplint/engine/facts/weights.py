"""Weights that are not what they should be when training starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.options import needs_option
from fsdplint.engine.facts.sharding import exclude_each_other, sharding_of
from fsdplint.engine.interpreter.elements import composed
from fsdplint.engine.interpreter.events import Call, Shard, Trace, Use
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Context,
    Object,
    Symbol,
    class_names,
    followed,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.initialisation import DRAWN_LAYERS, LOADS_STATE, keeps_weights

Frames = tuple[tuple[str, ir.Node], ...]


@dataclass(frozen=True, slots=True)
class UndefinedWeights:
    """A sharded module that computes with the memory ``to_empty`` found.

    Attributes:
        module: what ``to_empty`` was called on.
        on_meta: its model was built on the meta device.
        optional: what would set the weights if an option were given, if anything would.
        unset: the attributes of ``module`` that are left out, if only some are.
        others: what sets the rest of it then.
    """

    emptied: Call
    module: Object
    shard: Shard
    forward: Call
    optional: Use | None = None
    unset: tuple[str, ...] = ()
    others: tuple[Use, ...] = ()

    @property
    def on_meta(self) -> bool:
        return bool(self.whole.on_meta)

    @property
    def whole(self) -> Object:
        return root(self.module)


def is_loaded(model: Object) -> bool:
    """Whether Transformers' ``from_pretrained`` made it."""
    node = model.site.node if model.site is not None else None
    function = node.func if isinstance(node, ir.Call) else None
    by_name = isinstance(function, ir.Attribute) and function.attr == "from_pretrained"
    return by_name and any(name.startswith("transformers.") for name in class_names(model.cls))


def undefined_weights(program: Program) -> Iterator[UndefinedWeights]:
    """Sharded modules that nothing gives weights between ``to_empty`` and their first forward."""
    return on_every_path(pair for trace in program.traces for pair in _judged(program, trace))


def _judged(program: Program, trace: Trace) -> Iterator[tuple[Frames, UndefinedWeights | None]]:
    """Each ``to_empty`` with what is undefined behind it, None where something gives weights."""
    for emptied in trace.calls("to_empty"):
        module = emptied.receiver
        forward = first_forward(trace, module, emptied.time)
        if gets_no_memory(emptied) or forward is None or not isinstance(module, Object):
            continue
        uses = uses_between(trace, module, emptied.time, forward.time)
        shard = sharding_of(trace, module, None, before=forward.time)
        trained = [c.site for c in trace.calls("load_state_dict") if _is_optimizer(c.receiver)]
        gives = [u for u in uses if not keeps_weights(u.name) and u.site not in trained]
        gives = [use for use in gives if not exclude_each_other(use.site, emptied.site)]
        optional = all(_is_optional(trace, use, emptied, forward) for use in gives)
        unset = () if optional else _unset(module, gives)
        known = shard is not None and _certain(program, emptied, module, shard, forward)
        if known and shard is not None and (optional or unset):
            loads = [use for use in gives if use.name in LOADS_STATE]
            load = next(iter(loads or gives), None) if optional else None
            others = () if optional else tuple(gives)
            fact = UndefinedWeights(emptied, module, shard, forward, load, unset, others)
            yield emptied.site.frames(), fact
        elif not optional:
            yield emptied.site.frames(), None


def _is_optimizer(receiver: object) -> bool:
    return isinstance(receiver, Object) and bool(receiver.captures)


def _unset(module: Object, gives: list[Use]) -> tuple[str, ...]:
    """The attributes of a module with layers that none of the uses gets hold of."""
    held = {name: followed(value) for name, value in module.attrs.items()}
    parts = {n: p for n, p in held.items() if isinstance(p, Object) and p.parent is module}
    reached: set[Object] = set()
    for use in gives:
        inside = [(each, *each.ancestors()) for each in use.parts | use.given]
        inside = [above for above in inside if module in above]
        if not inside or any(module is above[0] for above in inside):
            return ()
        tops = {above[above.index(module) - 1] for above in inside}
        if not tops <= set(parts.values()):
            return ()
        reached |= tops
    return tuple(n for n, p in parts.items() if p not in reached and _draws_its_own(p))


def _draws_its_own(part: Object) -> bool:
    """Whether a part surely has layers with weights, and all that it has are its own."""
    layers = list(composed(part))
    if not all(map(_is_read, layers)) or any(map(_shares, layers)):
        return False
    return any(isinstance(e.cls, Symbol) and e.cls.name in DRAWN_LAYERS for e in layers)


def _shares(layer: Object) -> bool:
    """Whether a layer may hold parameters of another one."""
    held = map(followed, layer.attrs.values())
    if isinstance(layer.cls, ClassValue):  # its attributes are its own, too
        return any(isinstance(v, Object) and v.parent not in (None, layer) for v in held)
    return any(not isinstance(v, Object) or v.parent is not layer for v in held)


def _is_optional(trace: Trace, use: Use, *others: Call) -> bool:
    """Whether a use needs an option of the command line, and the other places need none."""
    needed = [needs_option(trace, place.site) for place in (use, *others)]
    return needed[0] and not any(needed[1:])


def gets_no_memory(emptied: Call) -> bool:
    """Whether the module gets no memory yet; FSDP1 calls ``reset_parameters`` as it gives some."""
    device = emptied.argument(0, "device")
    named = isinstance(device, Const) and device.value == "meta"
    return named or (isinstance(device, Context) and device.name == "meta")


def _certain(program: Program, emptied: Call, module: Object, shard: Shard, forward: Call) -> bool:
    if any(guard.divergent for guard in emptied.site.guards) or not _is_read(root(module)):
        return False
    if shard.generation is Generation.FSDP1 and syncs_states(shard) is not False:
        return False
    if ".param_init_fn()" in module.path() and not root(module).on_meta:
        return False
    sites = (emptied.site, forward.site)
    together = all(program.together(site, shard.site) for site in sites)
    return together and driven(emptied.site, forward.site)


def _is_read(model: Object) -> bool:
    """Whether it is known what the model is, and so whether its own code gives it weights."""
    if isinstance(model.cls, ClassValue):
        return not model.cls.opaque()
    return isinstance(model.cls, Symbol)


# What weights' stories have in common


def root(module: Object) -> Object:
    """The outermost object that ``module`` is a part of."""
    return next(reversed(list(module.ancestors())), module)


def related(one: Object, other: Object) -> bool:
    """Whether one of two modules is the other or a part of it."""
    return one is other or one in other.ancestors() or other in one.ancestors()


def first_forward(trace: Trace, module: object, after: int) -> Call | None:
    """The first forward of a module, or of one around or inside it, after a time."""
    for event in trace.calls("forward"):
        called = event.receiver
        known = isinstance(module, Object) and isinstance(called, Object)
        if event.time > after and known and related(module, called):  # type: ignore[arg-type]  # known
            return event
    return None


def uses_between(trace: Trace, module: Object, start: int, end: int) -> list[Use]:
    """What else than the program's own code got hold of a tracked module in a time."""
    return [use for use in trace.uses if start < use.time < end and module in use.objects]


def syncs_states(shard: Shard) -> bool | None:
    """Whether FSDP1 broadcasts rank 0's weights; None where an argument leaves it open."""
    value = shard.keywords.get("sync_module_states")
    if value is None:
        return None if shard.open else False
    value = must_be(value)
    return bool(value.value) if isinstance(value, Const) else None


def driven(first: Site, second: Site) -> bool:
    """Whether the program itself goes from one place to the other.

    It does not where a class is used by a driver that is not seen, which may do more in between.
    """
    (_, start), (_, end) = first.frames()[0], second.frames()[0]
    return start is end or not isinstance(start, ir.ClassDef)
