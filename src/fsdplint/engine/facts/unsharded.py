"""Roots that a forward leaves unsharded, since nothing reshards them but a backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import BuildOptimizer, Call, Repoint, Shard, Trace
from fsdplint.engine.facts.coverage import trains_outside
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Const, Object, Parameters
from fsdplint.knowledge.calls import RESHARDS, STATE_HELPERS, Generation


@dataclass(frozen=True, slots=True)
class UnshardedCapture:
    """An optimizer that took the root's parameters while they were unsharded.

    Attributes:
        opened: the forward, or the ``unshard()``, that left them so.
        whole: no part of the model is a unit of its own, so that it took no sharded one at all.
    """

    build: BuildOptimizer
    capture: Parameters
    shard: Shard
    opened: Call
    whole: bool


def unsharded_captures(program: Program) -> Iterator[UnshardedCapture]:
    """Optimizers on parameters of a root that an evaluation left unsharded."""
    for trace in program.traces:
        repointed = {event.optimizer for event in trace.of(Repoint)}
        for build in trace.of(BuildOptimizer):
            if build.optimizer not in repointed and not _replaced(trace, build):
                facts = (_capture(program, trace, build, c) for c in build.captures)
                yield from [fact for fact in facts if fact is not None][:1]


def _capture(
    program: Program, trace: Trace, build: BuildOptimizer, capture: Parameters
) -> UnshardedCapture | None:
    root = capture.module
    shard = root_shard(trace, root)
    if shard is None or capture.filtered or not program.together(build.site, shard.site):
        return None
    inner = units_inside(trace, root)
    given_away = root.escaped is not None and root.escaped < capture.time
    if given_away or not trains_outside(trace, root, inner):
        return None
    opened = left_open(program, trace, root, capture.time, build.site)
    if opened is None or opened.time < shard.time:
        return None
    return UnshardedCapture(build, capture, shard, opened, not inner)


def units_inside(trace: Trace, root: Object) -> list[Shard]:
    """The sharding calls on parts of ``root``."""
    return [shard for shard in trace.of(Shard) if root in shard.module.ancestors()]


def root_shard(trace: Trace, module: Object) -> Shard | None:
    """The FSDP2 call on ``module``, if it keeps the root unsharded after a forward."""
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
    """What unsharded ``root`` last before the time ``until``, where nothing resharded it since.

    Args:
        sometimes: whether it counts in a loop that only some iterations of it do so.
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


_CLOSING = frozenset(
    {
        "backward",
        "torch.autograd.backward",
        "reshard",
        "state_dict",
        "load_state_dict",
        "save_pretrained",
        *STATE_HELPERS,
        *RESHARDS,
    }
)


def _is_certain(trace: Trace, earlier: Site, later: Site, sometimes: bool) -> bool:
    """Whether the one place was reached where the other is; a loop is taken to have an element."""
    held = {(g.key, g.taken) for g in later.guards} | set(trace.decisions)
    return all(
        (g.key, g.taken) in held or ((g.early or sometimes) and g.progress and not g.divergent)
        for g in earlier.guards
    )


def _without_backward(program: Program, site: Site) -> bool:
    """Whether a forward is known to have no backward: no graph is made, or its result dropped."""
    tree = program.tree(site.path)
    if isinstance(tree.parent(site.node), ir.Expression):
        return True
    return gradient_mode(program, site) in NO_GRADIENTS


def _replaced(trace: Trace, build: BuildOptimizer) -> bool:
    """Whether a later optimizer of the same model is the one that is stepped."""
    modules = {capture.module for capture in build.captures}
    later = [other for other in trace.of(BuildOptimizer) if other.time > build.time]
    again = any(capture.module in modules for other in later for capture in other.captures)
    return again and not any(call.receiver is build.optimizer for call in trace.calls("step"))
