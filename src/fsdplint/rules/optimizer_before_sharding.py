"""Optimizers that hold parameters that sharding replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame, nodes_in_frame
from fsdplint.engine.facts.sharding import exclude_each_other, replaces
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Repoint, Shard, Trace
from fsdplint.engine.interpreter.values import Object, Parameters
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import build_after_sharding
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD301",
    summary="an optimizer is built before the model is sharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="optimizer",
)


@dataclass(frozen=True, slots=True)
class StaleOptimizer:
    """An optimizer that holds parameters that ``shard`` replaced later."""

    build: BuildOptimizer
    capture: Parameters
    shard: Shard
    last: Shard

    @property
    def optimizer_captures(self) -> list[Parameters]:
        return self.build.optimizer.captures


def stale_optimizers(program: Program) -> Iterator[StaleOptimizer]:
    """Yield optimizers that captured parameters before a sharding call replaced them for good."""
    for trace in program.traces:
        for build in trace.of(BuildOptimizer):
            fact = _stale(program, trace, build)
            if fact is not None and not _repaired_by_a_method(program, fact):
                yield fact


def _stale(program: Program, trace: Trace, build: BuildOptimizer) -> StaleOptimizer | None:
    if _repaired(trace, build):
        return None
    for capture in build.optimizer.captures:
        later = [shard for shard in trace.of(Shard) if replaces(shard, capture)]
        known = [
            s
            for s in later
            if program.together(capture.source, s.site) and program.together(build.site, s.site)
        ]
        if known and len(known) == len(later) and not _handed_on(program, known[0]):
            return StaleOptimizer(build, capture, known[0], known[-1])
    return None


def _handed_on(program: Program, shard: Shard) -> bool:
    """True if the sharding code gets an unknown optimizer, which it may re-point."""
    given = (
        (path, argument.value)
        for path, call in shard.site.calls
        if isinstance(call, ir.Call)
        for argument in call.args
    )
    return any(
        isinstance(value, (ir.Conditional, ir.Subscript))
        and "optim" in program.text(path, value).lower()
        for path, value in given
    )


def _repaired(trace: Trace, build: BuildOptimizer) -> bool:
    """True if the optimizer may be re-pointed, or a later one replaces it before any step."""
    shards = [s for s in trace.of(Shard) if any(replaces(s, c) for c in build.optimizer.captures)]
    if not shards:
        return False
    steps = [use.time for use in trace.of(Call) if _is_step(use, build, shards[-1].time)]
    if not steps and not trace.complete:
        return True  # its later use is unknown
    for event in trace.of(Repoint):
        if event.optimizer is build.optimizer and (event.certain or _between(event, shards, steps)):
            return True
        if _may_be(event.optimizer, build.optimizer):
            return True
    return not steps and _is_rebuilt(trace, build)


def _repaired_by_a_method(program: Program, fact: StaleOptimizer) -> bool:
    """True if a method that nothing calls repairs it, perhaps before another one steps it."""
    return any(
        _is_rebuilt(trace, build)
        or any(e.certain and e.optimizer is build.optimizer for e in trace.of(Repoint))
        for trace in program.method_traces_with(fact.shard.call)
        for build in trace.of(BuildOptimizer)
        if build.site.node is fact.build.site.node
    )


def _is_rebuilt(trace: Trace, build: BuildOptimizer) -> bool:
    """True if another optimizer is built for the same model afterwards."""
    modules = {capture.module for capture in build.captures}
    return any(
        capture.module in modules and capture.time > build.time
        for other in trace.of(BuildOptimizer)
        if not exclude_each_other(build.site, other.site)
        for capture in other.captures
    )


def _may_be(repointed: Object, optimizer: Object) -> bool:
    """True if the re-pointed object comes from where the optimizer went, and may be it."""
    unseen = optimizer.escaped is not None and not repointed.captures
    return optimizer in repointed.ancestors() or (unseen and repointed is not optimizer)


def _is_step(use: Call, build: BuildOptimizer, after: int) -> bool:
    return use.name == "step" and use.receiver is build.optimizer and use.time > after


def _between(event: Repoint, shards: list[Shard], steps: list[int]) -> bool:
    """True if unknown code had the optimizer and its model before the first step."""
    return event.time > shards[-1].time and (not steps or event.time < steps[0])


def reports(program: Program) -> Iterator[Report]:
    for fact in stale_optimizers(program):
        site, shard = fact.build.site, fact.shard.site
        call = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(site),
            f"`{fact.build.label}` holds the parameters that `{call}` replaces "
            f"{program.where(shard, site)}, so the new ones never train",
            "holds parameters that sharding replaces",
            _evidence(program, fact),
            partial(moved_below, program, fact),
        )


def _evidence(program: Program, fact: StaleOptimizer) -> tuple[Evidence, ...]:
    module = fact.capture.module
    made = () if module.site is None else (program.evidence(module.site, "model is built here"),)
    return (
        *made,
        program.evidence(fact.capture.source, "optimizer captures parameters here"),
        program.evidence(fact.shard.site, _replacement(fact)),
        *program.conditions(fact.build.site, fact.shard.site),
    )


def _replacement(fact: StaleOptimizer) -> str:
    if fact.shard.generation is Generation.FSDP1:
        return "parameters are flattened here"
    return "parameters become DTensor shards here"


def moved_below(program: Program, fact: StaleOptimizer) -> Fix | Declined:
    """Build the optimizer after the sharding, in a function that does both."""
    captured_early = fact.build.time > fact.last.time
    first = fact.capture.source if captured_early else fact.build.site
    frame = common_frame(first, fact.last.site)
    if frame is None:
        return Declined(
            "the optimizer and the sharding have no common caller; build the optimizer after the "
            "sharding by hand"
        )
    path, moved, last = frame
    if not isinstance(moved, ir.Call):
        return Declined(
            "the optimizer is built where its class is defined; build it after the sharding by hand"
        )
    captures = nodes_in_frame(fact.optimizer_captures, first, moved)
    return build_after_sharding(Code.of(program.tree(path)), moved, captures, last)
