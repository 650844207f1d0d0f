"""Parameters that are trained and that no FSDP2 unit holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import surely_in, with_parameters
from fsdplint.engine.facts.sharding import unfollowed_sharding
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Store, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Origin,
    Parameters,
    Symbol,
    Value,
    contained,
    followed,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import REPOINTING_CALLS, REPOINTING_METHODS, Generation
from fsdplint.knowledge.collectives import GRADIENT_HOOKS, KEEPS_REPLICAS_EQUAL, TENSOR_COLLECTIVES
from fsdplint.knowledge.modules import (
    BLOCK_CONTAINERS,
    CONTAINERS,
    TURNS_PARAMETERS_OFF,
    hugging_face_blocks,
)


@dataclass(frozen=True, slots=True)
class UnshardedRoot:
    """A model whose parts are units, with parameters outside them that an optimizer trains.

    Attributes:
        last: the last call that shards a part.
        training: where an optimizer gets all parameters of the model, or where its loss goes
            backward if it is not known which optimizer it has.
        outside: layers and parameters that are in no unit; empty for a library's model whose
            blocks are units, which has others besides.
    """

    model: Object
    last: Shard
    training: Site
    outside: tuple[Object, ...]


def unsharded_roots(program: Program) -> Iterator[UnshardedRoot]:
    """Models that train parameters outside all units, of which no path shards the root."""
    rooted = {
        shard.module.site.frames()
        for trace in program.traces
        for shard in trace.of(Shard)
        if shard.module.site is not None
    }
    for trace in program.traces:
        for model in dict.fromkeys(_top(shard.module) for shard in trace.of(Shard)):
            if model.site is not None and model.site.frames() not in rooted:
                fact = _unsharded(program, trace, model)
                if fact is not None:
                    yield fact


def _unsharded(program: Program, trace: Trace, model: Object) -> UnshardedRoot | None:
    """The fact of one model, if all that could shard or reduce its other parameters is known."""
    shards = [s for s in trace.of(Shard) if model in s.module.ancestors()]
    if not shards or not _is_read(model) or any(_unfit(program, shard) for shard in shards):
        return None
    last = shards[-1]
    training = _training(trace, model)
    if training is None or not program.together(training, last.site):
        return None
    if _handed_over(trace, model, last) or is_synchronized(program, trace):
        return None
    outside = _outside(model, {surely_in(shard.module) for shard in shards})
    if outside is None:
        return None
    trained = [part for part in outside or (model,) if not is_frozen(trace, part)]
    if not trained or any(is_replicated(trace, part) for part in trained):
        return None
    return UnshardedRoot(model, last, training, tuple(trained) if outside else ())


def _unfit(program: Program, shard: Shard) -> bool:
    return shard.generation is not Generation.FSDP2 or unfollowed_sharding(program, shard.site)


def _top(module: Object) -> Object:
    *_, top = module, *module.ancestors()
    return top


def _is_read(model: Object) -> bool:
    """Whether it is known what a model is made of, and that only this program holds it."""
    if model.origin is not Origin.ALLOCATED:
        return False
    if isinstance(model.cls, ClassValue):
        return not model.cls.opaque()
    return isinstance(model.cls, Symbol) and (
        model.cls.name in CONTAINERS or hugging_face_blocks(model.cls.name) is not None
    )


# What trains


def _training(trace: Trace, model: Object) -> Site | None:
    """What trains all parameters of ``model``, in one group or in several."""
    optimizers = trace.of(BuildOptimizer)
    for build in optimizers:
        groups = [c for c in build.optimizer.captures if c.module is model]
        if len(groups) > 1 or any(not group.filtered for group in groups):
            return build.site
    called = [call.time for call in trace.calls("forward") if call.receiver is model]
    backward = [call for call in trace.calls("backward") if called and call.time > called[0]]
    return backward[0].site if backward and not optimizers else None


def is_frozen(trace: Trace, part: Object, until: int | None = None) -> bool:
    """Whether the parameters of ``part`` may not be trained, by the last word before ``until``."""
    switched = [v for k, v in part.keywords.items() if k in TURNS_PARAMETERS_OFF]
    if any(isinstance(v, Const) and v.value is False for v in map(must_be, switched)):
        return True
    frozen = False
    whole = (part, *part.ancestors())
    switches: list[Store | Call] = [s for s in trace.of(Store) if s.name == "requires_grad"]
    switches += trace.calls("requires_grad_")
    for event in sorted(switches, key=lambda event: event.time):
        if until is not None and event.time >= until:
            break
        if isinstance(event, Store):
            owner, value = _owner(event.owner), event.value
        else:
            owner = _owner(event.receiver)
            value = event.argument(0, "requires_grad") or Const(True)
        if owner in whole:
            frozen = not (isinstance(value, Const) and value.value is True)
    return frozen


def _owner(value: Value | None) -> Object | None:
    """The module that a value is, or whose parameters it is."""
    found = followed(value)
    if isinstance(found, Parameters):
        found = found.module
    return surely_in(found) if isinstance(found, Object) else None


# Who else may shard or synchronize


def _handed_over(trace: Trace, model: Object, last: Shard) -> bool:
    """Whether unknown code had the model before its first forward or step, or it has neither."""
    uses = [call.time for call in trace.calls("forward") if call.receiver is model]
    for call in trace.calls("step"):
        optimizer = call.receiver
        if isinstance(optimizer, Object) and any(c.module is model for c in optimizer.captures):
            uses.append(call.time)
    first = min((time for time in uses if time > last.time), default=None)
    if first is None:
        return True
    return model.escaped is not None and model.escaped < first


def is_replicated(trace: Trace, part: Object) -> bool:
    """Whether something else than these units may reduce the gradients of ``part``."""
    whole = (part, *part.ancestors())
    names = (*KEEPS_REPLICAS_EQUAL, *REPOINTING_CALLS, *REPOINTING_METHODS)
    return any(
        item in whole
        for call in trace.calls(*names)
        for value in call.arguments.values()
        for item in contained(value)
    )


def is_synchronized(program: Program, trace: Trace) -> bool:
    """Whether the program, or a method of its objects, may reduce gradients by its own hand."""
    calls = {shard.call for shard in trace.of(Shard)}
    others = (each for call in calls for each in program.method_traces_with(call))
    return any(_reduces(program, each) for each in (trace, *others))


def _reduces(program: Program, trace: Trace) -> bool:
    if trace.calls(*GRADIENT_HOOKS):
        return True
    return any(_of_gradients(program, call.site) for call in trace.calls(*TENSOR_COLLECTIVES))


def _of_gradients(program: Program, site: Site) -> bool:
    """Whether a collective may be on gradients or parameters, by the code around it."""
    tree = program.tree(site.path)
    for node in tree.ancestors(site.node):
        if isinstance(node, ir.For) and "param" in program.text(site.path, node.iterable):
            return True
        if isinstance(node, (ir.Function, ir.Module)):
            inner = ir.walk(node)
            return any(isinstance(each, ir.Attribute) and each.attr == "grad" for each in inner)
    return False


# What is outside


def trains_outside(
    trace: Trace, model: Object, shards: Collection[Shard], until: int | None = None
) -> bool:
    """Whether ``model`` surely trains parameters that ``shards`` of its parts leave to itself.

    Args:
        until: the time of the question, for parameters that are frozen later; the end if None.
    """
    if not shards:
        return not is_frozen(trace, model, until)
    outside = None
    if _is_read(model):
        outside = _outside(model, {surely_in(shard.module) for shard in shards})
    if outside is None:
        return False
    return not all(is_frozen(trace, part, until) for part in outside or (model,))


def _outside(model: Object, units: set[Object]) -> tuple[Object, ...] | None:
    """The layers and parameters of ``model`` in none of ``units``; None if none is known."""
    if isinstance(model.cls, Symbol) and model.cls.name not in CONTAINERS:
        return () if all(_in_blocks(model.cls.name, unit) for unit in units) else None
    found = tuple(dict.fromkeys(with_parameters(model, units)))
    return found or None


def _in_blocks(name: str, unit: Object) -> bool:
    """Whether a unit of a library's model is surely one of its repeated blocks, or all of them."""
    path = unit.path()
    known = hugging_face_blocks(name) or ()
    if known:
        return any(path.startswith(f".{container}") for container in known)
    return path.partition("[")[0].rpartition(".")[2] in BLOCK_CONTAINERS
