from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.replaced import ReplacedParameters, replaced_parameters
from fsdplint.engine.places import common_frame, nodes_in_frame
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Evidence, Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def parameters_replaced_after_optimizer(program: Program) -> Iterator[Report]:
    for fact in replaced_parameters(program):
        frame = common_frame(fact.build.site, fact.load.site)
        at = fact.load.site if frame is None else Site(frame[0], frame[2])
        yield Report(
            program.span(at),
            f"this load replaces the parameters that `{fact.build.label}` has taken "
            f"{program.where(fact.build.site, at)}, so its steps do not change the model",
            "new parameters, which no optimizer holds",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: ReplacedParameters) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.capture.source, "the optimizer takes the parameters"),
        program.evidence(fact.load.site, "`assign=True` puts new parameters in their place"),
        program.evidence(fact.step.site, "steps over the old ones"),
        *program.conditions(fact.load.site, fact.build.site),
    )


def _fix(program: Program, fact: ReplacedParameters) -> Fix | Declined:
    first = fact.build.site
    frame = common_frame(first, fact.load.site)
    if frame is None:
        return Declined("the optimizer and the load stand in functions that share no caller")
    path, moved, load = frame
    if not isinstance(moved, ir.Call) or not isinstance(load, ir.Call):
        return Declined("the optimizer is built where its class is defined")
    captures = nodes_in_frame(fact.build.optimizer.captures, first, moved)
    code = fixes.code.Code.of(program.tree(path))
    above = [node for node in captures if node.start < load.start]
    title = f"build the optimizer after `{code.short(load.func)}`"
    return fixes.move.move_below(code, moved, load, title, Safety.UNSAFE, above)
