"""Roots that are used after an evaluation left them unsharded.

``unshard()``, or a forward without a backward, opens the root, and nothing reshards it. The use is
an optimizer's construction or step, or a call that changes only the gathered tensors or only the
shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.coverage import trains_outside
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.interpreter.events import (
    BuildOptimizer,
    Call,
    Repoint,
    Shard,
    Store,
    Trace,
    states_in,
)
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Parameters, Tensor, Value, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import BACKWARDS, RESHARDS, STATE_HELPERS, Generation
from fsdplint.knowledge.checkpoints import LOAD
from fsdplint.knowledge.tensors import IN_PLACE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD308",
    summary="an evaluation leaves the root unsharded, so later code misses its shards",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="optimizer",
)


@dataclass(frozen=True, slots=True)
class OpenRoot:
    """A root that is surely unsharded at some place.

    Attributes:
        opened: the forward or the ``unshard()`` that left it unsharded.
        whole: true if no part of the model is a separate unit.
    """

    shard: Shard
    opened: Call
    whole: bool


@dataclass(frozen=True, slots=True)
class UnshardedCapture:
    """An optimizer that captured the root's parameters while they were unsharded."""

    build: BuildOptimizer
    capture: Parameters
    root: OpenRoot


def unsharded_captures(program: Program) -> Iterator[UnshardedCapture]:
    """Yield optimizers on parameters of a root that an evaluation left unsharded."""
    for trace in program.traces:
        repointed = {event.optimizer for event in trace.of(Repoint)}
        for build in trace.of(BuildOptimizer):
            if build.optimizer not in repointed and not _replaced(trace, build):
                facts = (_capture(program, trace, build, c) for c in build.captures)
                yield from [fact for fact in facts if fact is not None][:1]


def _capture(
    program: Program, trace: Trace, build: BuildOptimizer, capture: Parameters
) -> UnshardedCapture | None:
    if capture.filtered:
        return None
    root = _open_root(program, trace, capture.module, capture.time, build.site)
    return None if root is None else UnshardedCapture(build, capture, root)


def _open_root(
    program: Program,
    trace: Trace,
    model: Object,
    time: int,
    site: Site,
    *,
    until: int | None = None,
    sometimes: bool = False,
) -> OpenRoot | None:
    """Return ``model`` as an open root, if it is unsharded there and trains its own parameters.

    Args:
        until: the time until which freezing counts; any time if None.
        sometimes: as of `left_open`.
    """
    shard = root_shard(trace, model)
    if shard is None or not program.together(site, shard.site):
        return None
    inner = [each for each in trace.of(Shard) if model in each.module.ancestors()]
    given_away = model.escaped is not None and model.escaped < time
    if given_away or not trains_outside(trace, model, inner, until):
        return None
    opened = left_open(program, trace, model, time, site, sometimes)
    if opened is None or opened.time < shard.time:
        return None
    return OpenRoot(shard, opened, not inner)


def root_shard(trace: Trace, module: Object) -> Shard | None:
    """Return the FSDP2 call on ``module``, if it keeps the root unsharded after a forward."""
    shards = trace.of(Shard)
    if any(s.module in module.ancestors() for s in shards) or trace.calls(
        "set_reshard_after_forward"
    ):
        return None
    own = [s for s in shards if s.module is module]
    if len(own) != 1 or own[0].generation is not Generation.FSDP2:
        return None
    explicit = {argument.keyword for argument in own[0].call.args if argument.keyword}
    spread = any(argument.star == "**" for argument in own[0].call.args)
    if spread and not own[0].keywords.keys() - explicit:
        return None
    given = own[0].keywords.get("reshard_after_forward", Const(None))
    return own[0] if isinstance(given, Const) and given.value in (None, False) else None


def left_open(
    program: Program, trace: Trace, root: Object, until: int, site: Site, sometimes: bool = False
) -> Call | None:
    """Return what last unsharded ``root`` before ``until``, if nothing resharded it since.

    Args:
        sometimes: count it even if only some iterations of a loop do so.
    """
    events = [e for e in trace.of(Call) if e.time < until]
    opening = [e for e in events if e.receiver is root and e.name in ("forward", "unshard")]
    if not opening:
        return None
    last = opening[-1]
    closed = any(e.name in _CLOSING and e.time > last.time for e in events)
    given = any(last.time < e.time < until and root in e.objects for e in trace.escapes)
    if closed or given or not _is_certain(trace, last.site, site, sometimes):
        return None
    return last if last.name == "unshard" or _without_backward(program, last.site) else None


_STATE = ("state_dict", "load_state_dict", "save_pretrained", *STATE_HELPERS)
_CLOSING = frozenset({*BACKWARDS, *RESHARDS, "reshard", *_STATE})


def _is_certain(trace: Trace, earlier: Site, later: Site, sometimes: bool) -> bool:
    """True if a path to ``later`` passed ``earlier``; loops are assumed to run at least once."""
    held = {(g.key, g.taken) for g in later.guards} | set(trace.decisions)
    return all(
        (g.key, g.taken) in held or ((g.early or sometimes) and g.progress and not g.divergent)
        for g in earlier.guards
    )


def _without_backward(program: Program, site: Site) -> bool:
    """True if a forward surely has no backward: no graph, or the result is dropped."""
    tree = program.tree(site.path)
    if isinstance(tree.parent(site.node), ir.Expression):
        return True
    return gradient_mode(program, site) in NO_GRADIENTS


def _replaced(trace: Trace, build: BuildOptimizer) -> bool:
    """True if a later optimizer of the same model is the one that steps."""
    modules = {capture.module for capture in build.captures}
    later = [other for other in trace.of(BuildOptimizer) if other.time > build.time]
    again = any(capture.module in modules for other in later for capture in other.captures)
    return again and not any(call.receiver is build.optimizer for call in trace.calls("step"))


class Effect(Enum):
    """The effect of using an unsharded root (measured on torch 2.13)."""

    LOST = "the gathered tensors change, and the next reshard drops them"
    STALE = "the shards change, and the next forward uses the gathered tensors"


@dataclass(frozen=True, slots=True)
class UnshardedUse:
    """A call or an assignment that uses a root that an evaluation left unsharded.

    Attributes:
        model: the root's name in the function of ``site``, "" if unknown.
    """

    site: Site
    effect: Effect
    model: str
    root: OpenRoot


def unsharded_uses(program: Program) -> Iterator[UnshardedUse]:
    """Yield the first use of each such root, except the construction of optimizers."""
    for trace in program.traces:
        if not any(call.name in ("forward", "unshard") for call in trace.of(Call)):
            continue
        known: set[Call] = set()
        for event, root, effect in sorted(_uses_in(trace), key=lambda use: use[0].time):
            fact = _use(program, trace, event, root, effect)
            if fact is not None and fact.root.opened not in known:
                known.add(fact.root.opened)
                yield fact


def _uses_in(trace: Trace) -> Iterator[tuple[Call | Store, Object, Effect]]:
    """Yield calls and assignments that affect the parameters or the state of one module."""
    for store in trace.of(Store):
        freezes = store.name == "requires_grad" and _is_false(store.value)
        if freezes and isinstance(store.owner, Parameters):
            yield store, store.owner.module, Effect.LOST
    for call in trace.of(Call):
        if call.name in _KINDS:
            effect = _KINDS[call.name]
            yield from ((call, root, effect) for root in _roots(call))


def _roots(call: Call) -> list[Object]:
    """Return the modules whose gathered tensors a call changes or ignores."""
    receiver = followed(call.receiver)
    if call.name == "step":
        captures = receiver.captures if isinstance(receiver, Object) else []
        return [capture.module for capture in captures]
    if call.name == "requires_grad_":
        return _held_by(receiver, True) if _is_false(call.argument(0, "requires_grad")) else []
    if call.name in IN_PLACE:
        return _held_by(receiver, False)
    given = call.argument(0, "state_dict")
    found = () if given is None else states_in(given)
    return [state.owner for state in found if state.optimizer is None]


def _held_by(receiver: Value | None, whole: bool) -> list[Object]:
    if isinstance(receiver, (Parameters, Tensor)):
        return [receiver.module]
    return [receiver] if whole and isinstance(receiver, Object) else []


def _is_false(value: Value | None) -> bool:
    """True if the value freezes parameters."""
    return isinstance(value, Const) and value.value is False


def _use(
    program: Program, trace: Trace, event: Call | Store, model: Object, effect: Effect
) -> UnshardedUse | None:
    time, site = event.time, event.site
    stepped = isinstance(event, Call) and event.name == "step"
    root = _open_root(program, trace, model, time, site, until=time, sometimes=stepped)
    if root is None or (stepped and not _has_gradients(program, trace, event, root.opened)):
        return None
    return UnshardedUse(site, effect, _model(program, event, model), root)


def _has_gradients(program: Program, trace: Trace, step: Call | Store, opened: Call) -> bool:
    """True if a backward ran before the evaluation, in the same iteration as both."""
    return any(
        backward.time < opened.time and share_loop(program, backward.site, step.site)
        for backward in trace.calls(*BACKWARDS)
        if share_loop(program, opened.site, step.site)
    )


def _model(program: Program, event: Call | Store, root: Object) -> str:
    if isinstance(event, Store) or not isinstance(event.site.node, ir.Call):
        return ""
    names = [name for name, known in event.names.items() if known is root]
    function = event.site.node.func
    if event.receiver is root and isinstance(function, ir.Attribute):
        names.append(program.text(event.site.path, function.value))
    return min(names, key=len, default="")


_KINDS = {
    **dict.fromkeys((*IN_PLACE, "requires_grad_"), Effect.LOST),
    "step": Effect.STALE,
    LOAD: Effect.STALE,
}


def reports(program: Program) -> Iterator[Report]:
    yield from _captures(program)
    yield from _uses(program)


def _captures(program: Program) -> Iterator[Report]:
    for fact in unsharded_captures(program):
        site, source = fact.build.site, fact.capture.source
        assert isinstance(source.node, ir.Call)
        code = Code.of(program.tree(source.path))
        build = site.node if site.path == source.path else None
        what = "the model" if fact.root.whole else "the root's own parameters"
        yield Report(
            program.span(site),
            f"`{fact.build.label}` holds the unsharded parameters that "
            f"{_opened(program, fact.root, site)} left in the root, so its steps never change "
            f"{what}",
            "holds the root's unsharded parameters",
            _evidence(
                program,
                fact.root,
                site,
                program.evidence(source, "optimizer captures parameters here"),
            ),
            partial(reshard_before, code, source.node, build),
        )


def _opened(program: Program, root: OpenRoot, site: Site) -> str:
    """Return what left the root unsharded, for a message at a place."""
    opened = root.opened.site
    return f"`{program.text(opened.path, opened.node)}` {program.where(opened, site)}"


def _evidence(
    program: Program, root: OpenRoot, site: Site, *taken: Evidence
) -> tuple[Evidence, ...]:
    opened = root.opened.site
    return (
        program.evidence(root.shard.site, "root is sharded here"),
        program.evidence(opened, "leaves the root unsharded: no backward follows"),
        *taken,
        *program.conditions(opened, site),
    )


_CONSEQUENCES = {
    Effect.LOST: (
        "changes only the unsharded parameters",
        "the next reshard drops the change",
        "this change is lost",
    ),
    Effect.STALE: (
        "changes only the shards and not the unsharded parameters",
        "the next forward still uses the old weights",
        "the next forward ignores this change",
    ),
}


def _uses(program: Program) -> Iterator[Report]:
    for fact in unsharded_uses(program):
        site = fact.site
        change, consequence, label = _CONSEQUENCES[fact.effect]
        used = site.node.func if isinstance(site.node, ir.Call) else site.node
        code = Code.of(program.tree(site.path))
        yield Report(
            program.span(site),
            f"`{program.text(site.path, used)}` {change} that {_opened(program, fact.root, site)} "
            f"left in the root: {consequence}",
            label,
            _evidence(program, fact.root, site),
            partial(reshard_before_use, code, fact.model, site.node),
        )


_BY_HAND = "call the model's `reshard()` before this by hand"


@builder
def reshard_before(code: Code, source: ir.Call, build: ir.Node | None) -> Fix:
    """Insert ``model.reshard()`` before the optimizer is built from ``model.parameters()``.

    Args:
        source: the call that captures the parameters.
        build: the optimizer's construction, if it is in the same file.
    """
    model = source.func.value if isinstance(source.func, ir.Attribute) else source.func
    if dotted(model) is None:
        raise NoFixError(f"`{code.short(source)}` does not name the model; {_BY_HAND}")
    if build is None or code.function(build) is not code.function(source):
        raise NoFixError(
            f"`{code.short(source)}` is not in the function that builds the optimizer; {_BY_HAND}"
        )
    first = min(code.statement(source), code.statement(build), key=lambda node: node.start)
    return _insert(code, code.slice(model), first, "building the optimizer")


@builder
def reshard_before_use(code: Code, model: str, use: ir.Node) -> Fix:
    """Insert ``model.reshard()`` before the statement of ``use``."""
    if not model:
        raise NoFixError(f"the model has no name here; {_BY_HAND}")
    return _insert(code, model, code.statement(use), "this line")


def _insert(code: Code, model: str, statement: ir.Stmt, what: str) -> Fix:
    start, _ = code.extent(statement)
    call = f"{model}.reshard()"
    line = f"{code.indentation(statement)}{call}{code.newline}"
    title = f"call `{call}` before {what}"
    return Fix(title, Safety.UNSAFE, (code.insert_lines(start, line),))
