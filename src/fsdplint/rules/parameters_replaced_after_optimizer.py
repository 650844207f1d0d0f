"""Optimizers that hold parameters that a load replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame, nodes_in_frame
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.facts.state_files import plain_loads
from fsdplint.engine.facts.weights import driven
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Repoint, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Parameters
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import move_below
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD310",
    summary="a load with `assign=True` replaces parameters that an optimizer holds",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="optimizer",
)


_SWAPS = "set_swap_module_params_on_conversion"


@dataclass(frozen=True, slots=True)
class ReplacedParameters:
    """An optimizer that steps parameters that ``load`` with ``assign=True`` replaced."""

    build: BuildOptimizer
    capture: Parameters
    load: Call
    shard: Sharding
    step: Call


def replaced_parameters(program: Program) -> Iterator[ReplacedParameters]:
    """Yield optimizers of FSDP2's parameters that are built before the load and step after it.

    FSDP1 copies assigned values into its own parameters (torch 2.13). A file's plain tensors
    instead of DTensors fail before any step, and full-state-dict-into-sharded-model reports them.
    """
    plain = {fact.call for fact in plain_loads(program)}
    for trace in program.traces:
        for load in trace.calls("load_state_dict"):
            assign = load.argument(2, "assign")
            if load in plain or not isinstance(assign, Const) or assign.value is not True:
                continue
            for build in trace.of(BuildOptimizer):
                fact = _replaced(program, trace, load, build)
                if fact is not None:
                    yield fact


def _replaced(
    program: Program, trace: Trace, load: Call, build: BuildOptimizer
) -> ReplacedParameters | None:
    """Return the fact of one load and one optimizer, if it steps what the load replaced."""
    module = load.receiver
    if not isinstance(module, Object) or not driven(build.site, load.site):
        return None
    shard, capture = unit_of(trace, module), _capture(build, load, module)
    if shard is None or capture is None or shard.time > capture.time:
        return None
    later = [s for s in trace.calls("step") if s.time > load.time]
    steps = [step for step in later if step.receiver is build.optimizer]
    if not steps or _repaired(trace, load, build, steps[0]):
        return None
    frames = (*load.site.frames(), *build.site.frames())
    if any(_SWAPS in program.tree(path).text for path, _ in frames):
        return None
    sites = (load.site, build.site)
    if not all(program.together(site, shard.site) for site in sites):
        return None
    return ReplacedParameters(build, capture, load, shard, steps[0])


def _capture(build: BuildOptimizer, load: Call, module: Object) -> Parameters | None:
    """Return parameters of an optimizer of which the load surely replaces some."""
    captures = build.optimizer.captures
    if any(capture.time > load.time for capture in captures):
        return None
    strict = load.argument(1, "strict")
    whole = strict is None or (isinstance(strict, Const) and strict.value is True)
    for capture in captures:
        inside = capture.module is module or module in capture.module.ancestors()
        around = capture.module in module.ancestors()
        if (inside and (whole or not capture.filtered)) or (around and not capture.filtered):
            return capture
    return None


def _repaired(trace: Trace, load: Call, build: BuildOptimizer, step: Call) -> bool:
    """True if the optimizer may get the new parameters before it steps."""
    events = [event for event in trace.of(Repoint) if event.optimizer is build.optimizer]
    if any(load.time < event.time < step.time for event in events):
        return True
    modules = {capture.module for capture in build.captures}
    others = (other for other in trace.of(BuildOptimizer) if load.time < other.time < step.time)
    return any(capture.module in modules for other in others for capture in other.captures)


def reports(program: Program) -> Iterator[Report]:
    for fact in replaced_parameters(program):
        frame = common_frame(fact.build.site, fact.load.site)
        at = fact.load.site if frame is None else Site(frame[0], frame[2])
        yield Report(
            program.span(at),
            f"this load with `assign=True` replaces the parameters that `{fact.build.label}` holds "
            f"(built {program.where(fact.build.site, at)}), so its steps never change the model",
            "replaces the optimizer's parameters",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: ReplacedParameters) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.capture.source, "optimizer captures parameters here"),
        program.evidence(fact.load.site, "`assign=True` replaces the parameters here"),
        program.evidence(fact.step.site, "steps the old parameters"),
        *program.conditions(fact.load.site, fact.build.site),
    )


def _fix(program: Program, fact: ReplacedParameters) -> Fix | Declined:
    first = fact.build.site
    frame = common_frame(first, fact.load.site)
    if frame is None:
        return Declined(
            "the optimizer and the load have no common caller; build the optimizer after the "
            "load by hand"
        )
    path, moved, load = frame
    if not isinstance(moved, ir.Call) or not isinstance(load, ir.Call):
        return Declined(
            "the optimizer is built where its class is defined; build it after the load by hand"
        )
    captures = nodes_in_frame(fact.build.optimizer.captures, first, moved)
    code = Code.of(program.tree(path))
    above = [node for node in captures if node.start < load.start]
    title = f"build the optimizer after `{code.short(load.func)}`"
    return move_below(code, moved, load, title, Safety.UNSAFE, above)
