"""What is done to a root while it is left unsharded, and so misses its shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard, Store, Trace, states_in
from fsdplint.engine.facts.coverage import trains_outside
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.facts.unsharded import left_open, root_shard, units_inside
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Const, Object, Parameters, Tensor, Value, resolved
from fsdplint.knowledge.tensors import IN_PLACE


class Effect(Enum):
    """What becomes of a use of a root that is unsharded (measured on torch 2.13)."""

    LOST = "the gathered tensors are changed, and dropped by the next reshard"
    STALE = "the shards are changed, and the next forward takes the gathered tensors"
    REFUSED = "it stops at the gathered tensors"


@dataclass(frozen=True, slots=True)
class UnshardedUse:
    """A call or an assignment that takes a root which an evaluation left unsharded.

    Attributes:
        model: how the function that holds ``site`` names the root, "" where that is not seen.
        opened: the forward, or the ``unshard()``, that left it so.
    """

    site: Site
    effect: Effect
    model: str
    shard: Shard
    opened: Call


def unsharded_uses(program: Program) -> Iterator[UnshardedUse]:
    """The first use of each root that an evaluation left so, the building of optimizers apart."""
    for trace in program.traces:
        if not any(call.name in ("forward", "unshard") for call in trace.of(Call)):
            continue
        known: set[Call] = set()
        for event, root, effect in sorted(_uses(trace), key=lambda use: use[0].time):
            fact = _use(program, trace, event, root, effect)
            if fact is not None and fact.opened not in known:
                known.add(fact.opened)
                yield fact


Used = tuple["Call | Store", Object, Effect]


def _uses(trace: Trace) -> Iterator[Used]:
    """Calls and assignments that concern the parameters or the state of one module."""
    for store in trace.of(Store):
        freezes = store.name == "requires_grad" and _is_false(store.value)
        if freezes and isinstance(store.owner, Parameters):
            yield store, store.owner.module, Effect.LOST
    for call in trace.of(Call):
        if call.name in _KINDS:
            effect = _KINDS[call.name]
            yield from ((call, root, effect) for root in _roots(call))


def _roots(call: Call) -> list[Object]:
    """The modules whose gathered tensors a call takes, or takes no notice of."""
    receiver = None if call.receiver is None else resolved(call.receiver)
    if call.name == "step":
        captures = receiver.captures if isinstance(receiver, Object) else []
        return [capture.module for capture in captures]
    if call.name == "requires_grad_":
        return _held_by(receiver, True) if _is_false(call.argument(0, "requires_grad")) else []
    if call.name in IN_PLACE:
        return _held_by(receiver, False)
    if call.name == "torch.distributed.checkpoint.load":
        given = call.argument(0, "state_dict")
        found = () if given is None else states_in(given)
        return [state.owner for state in found if state.optimizer is None]
    if call.name.endswith("set_model_state_dict") and not _takes_full(call):
        return []
    model = call.argument(0, "model")
    return [model] if isinstance(model, Object) else []


def _held_by(receiver: Value | None, whole: bool) -> list[Object]:
    if isinstance(receiver, (Parameters, Tensor)):
        return [receiver.module]
    return [receiver] if whole and isinstance(receiver, Object) else []


def _is_false(value: Value | None) -> bool:
    """Whether parameters that train are frozen by it; to ask again that they train is no change."""
    return isinstance(value, Const) and value.value is False


def _takes_full(call: Call) -> bool:
    options = call.argument(99, "options")
    full = options.keywords.get("full_state_dict") if isinstance(options, Object) else None
    return isinstance(full, Const) and full.value is True


def _use(
    program: Program, trace: Trace, event: Call | Store, root: Object, effect: Effect
) -> UnshardedUse | None:
    shard = root_shard(trace, root)
    if shard is None or not program.together(event.site, shard.site):
        return None
    given_away = root.escaped is not None and root.escaped < event.time
    inner = units_inside(trace, root)
    if given_away or not trains_outside(trace, root, inner, until=event.time):
        return None
    stepped = isinstance(event, Call) and event.name == "step"
    opened = left_open(program, trace, root, event.time, event.site, sometimes=stepped)
    if opened is None or opened.time < shard.time:
        return None
    if stepped and not _has_gradients(program, trace, event, opened):
        return None
    return UnshardedUse(event.site, effect, _model(program, event, root), shard, opened)


def _has_gradients(program: Program, trace: Trace, step: Call | Store, opened: Call) -> bool:
    """Whether a backward came before the evaluation, in the same iteration as both."""
    return any(
        backward.time < opened.time and share_loop(program, backward.site, step.site)
        for backward in trace.calls("backward", "torch.autograd.backward")
        if share_loop(program, opened.site, step.site)
    )


def _model(program: Program, event: Call | Store, root: Object) -> str:
    if isinstance(event, Store) or not isinstance(event.site.node, ir.Call):
        return ""
    names = [name for name, known in event.names.items() if known is root]
    node, path = event.site.node, event.site.path
    if names:
        return min(names, key=len)
    if event.receiver is root and isinstance(node.func, ir.Attribute):
        return program.text(path, node.func.value)
    given = [argument.value for argument in node.args if argument.keyword in (None, "model")]
    return program.text(path, given[0]) if given and event.receiver is None else ""


_KINDS = {
    **dict.fromkeys((*IN_PLACE, "requires_grad_"), Effect.LOST),
    "step": Effect.STALE,
    "torch.distributed.checkpoint.load": Effect.STALE,
    "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict": Effect.REFUSED,
    "torch.distributed.checkpoint.state_dict.set_model_state_dict": Effect.REFUSED,
}
