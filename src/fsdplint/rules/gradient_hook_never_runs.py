"""Hooks on parameters that autograd never gives a gradient, since FSDP computes with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.sharding import exclude_each_other, runs_alone
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.modules import is_parameter
from fsdplint.engine.interpreter.values import Object, Parameters, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import move_below
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import AFTER_ACCUMULATION, GRADIENT_HOOKS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD321",
    summary="a gradient hook never runs, because FSDP computes with other parameters",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)


@dataclass(frozen=True, slots=True)
class SilentHook:
    """A hook that never runs, by the sharding call ``shard``.

    Attributes:
        early: it is on parameters that were taken before that call, else behind it.
    """

    hook: Call
    shard: Shard
    last: Shard
    early: bool


def silent_hooks(program: Program) -> Iterator[SilentHook]:
    """Hooks on parameters that sharding replaces, or that no backward reaches behind it."""
    for trace in program.traces:
        hooks = trace.calls(*GRADIENT_HOOKS)
        if not hooks or runs_alone(trace):
            continue
        for hook in hooks:
            fact = _silent(trace, hook)
            if fact is None or _is_registered_again(trace, fact):
                continue
            if program.together(hook.site, fact.shard.site):
                yield fact


def _silent(trace: Trace, hook: Call) -> SilentHook | None:
    taken = _taken(hook)
    if taken is None:
        return None
    module, time = taken
    shards = [s for s in trace.of(Shard) if _cuts(s, module)]
    shards = [s for s in shards if not exclude_each_other(hook.site, s.site)]
    if not all(_is_known(shard) for shard in shards):
        return None
    if not any(s.module in (module, *module.ancestors()) for s in shards):
        return None  # of its parameters, only some are sharded
    if later := [s for s in shards if s.time > time]:
        return SilentHook(hook, later[0], later[-1], early=True)
    for shard in shards:
        flat = shard.generation is Generation.FSDP1
        if shard.keeps_parameters if flat else hook.name != AFTER_ACCUMULATION:
            return SilentHook(hook, shard, shards[-1], early=False)
    return None


def _taken(hook: Call) -> tuple[Object, int] | None:
    """The module whose parameters a hook is registered on, and when they were taken."""
    owner = None if hook.receiver is None else followed(hook.receiver)
    if isinstance(owner, Parameters):
        return owner.module, hook.time if owner.lazy else owner.time
    if isinstance(owner, Object) and is_parameter(owner) and owner.parent is not None:
        return owner.parent, hook.time
    return None


def _cuts(shard: Shard, module: Object) -> bool:
    """Whether a call concerns parameters of ``module``: all, or those of a part of it."""
    around = (module, *module.ancestors())
    return shard.module in around or module in shard.module.ancestors()


def _is_known(shard: Shard) -> bool:
    """Whether a call surely shards all parameters that it gets."""
    whole = shard.generation is Generation.FSDP2 or shard.cuts_flat
    return whole and not shard.may_leave_out and shard.keeps_parameters is not None


def _is_registered_again(trace: Trace, fact: SilentHook) -> bool:
    """Whether a hook that comes too early is only the first of two."""
    if not fact.early:
        return False
    own, sharded = _taken(fact.hook), fact.last.time
    later = [_taken(h) for h in trace.calls(*GRADIENT_HOOKS) if h.time > sharded]
    return any(t is None or own is None or (t[0] is own[0] and t[1] > sharded) for t in later)


def reports(program: Program) -> Iterator[Report]:
    for fact in silent_hooks(program):
        site, shard = fact.hook.site, fact.shard.site
        sharding = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(site),
            f"this hook never runs: {_why(fact, sharding)} {program.where(shard, site)}",
            "never runs",
            (program.evidence(shard, "sharded here"), *program.conditions(site, shard)),
            partial(_fix, program, fact),
        )


def _why(fact: SilentHook, sharding: str) -> str:
    if fact.shard.keeps_parameters and fact.shard.generation is Generation.FSDP1:
        return f"the backward does not reach the original parameters that `{sharding}` keeps"
    if fact.early:
        return f"it is on parameters that `{sharding}` replaces"
    return f"the backward does not reach the parameters that `{sharding}` creates"


def _fix(program: Program, fact: SilentHook) -> Fix | Declined:
    flat = fact.shard.generation is Generation.FSDP1
    if flat and fact.shard.keeps_parameters:
        return Declined(
            "FSDP1 with `use_orig_params=True` runs no hook of a parameter; change "
            "the gradients after `backward()`"
        )
    if fact.hook.name != AFTER_ACCUMULATION and flat:
        return Declined(
            "the hook would get one flat gradient for each unit; register one for that after "
            "the sharding by hand"
        )
    if fact.hook.name != AFTER_ACCUMULATION:
        return Declined(
            "FSDP2 runs no hook before it reduces the gradients; change them after "
            "`backward()`, or in `register_post_accumulate_grad_hook` after the sharding"
        )
    frame = common_frame(fact.hook.site, fact.last.site)
    if frame is None:
        return Declined(
            "the hook and the sharding are in functions without a common caller; "
            "register the hook after the sharding by hand"
        )
    path, moved, last = frame
    code = Code.of(program.tree(path))
    loops = [node for node in code.ancestors(moved) if isinstance(node, ir.For)]
    whole = [loop for loop in loops if code.function(loop) is code.function(moved)]
    whole = [loop for loop in whole if not loop.start <= last.start < loop.end]
    first = whole[-1] if whole else moved
    if last.start < first.start:
        return Declined("the parameters were collected before the sharding; collect them after it")
    return move_below(code, first, last, "register the hook after the sharding", Safety.UNSAFE)
