"""Backward passes that a program has promised to finalize, and does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.facts.sharding import runs_alone, unit_of
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.values import Const, Object, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import BACKWARDS, FINALIZE, MANUAL_FINALIZATION
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD323",
    summary="manual backward finalization is on, but nothing finalizes the backward",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="gradients",
    preview="its precision on public code has not been measured.",
)


@dataclass(frozen=True, slots=True)
class UnfinalizedStep:
    """A ``step`` behind a ``backward`` that nothing finalizes, since ``manual`` was called."""

    manual: Call
    shard: Sharding
    backward: Call
    step: Call


def unfinalized_steps(program: Program) -> Iterator[UnfinalizedStep]:
    """Steps of optimizers in programs that turn automatic finalization off and have no other."""
    traces = [trace for trace in program.traces if trace.calls(MANUAL_FINALIZATION)]
    if not traces or any(next(t.walk(FINALIZE), None) for t in program.trees_with(FINALIZE)):
        return
    for trace in traces:
        calls = [] if runs_alone(trace) else trace.calls(MANUAL_FINALIZATION)
        for at, call in enumerate(calls):
            fact = _unfinalized(program, trace, call, calls[at + 1 :])
            if fact is not None:
                yield fact


def _unfinalized(
    program: Program, trace: Trace, call: Call, later: list[Call]
) -> UnfinalizedStep | None:
    module, enabled = followed(call.receiver), call.argument(0, "enabled")
    known = isinstance(enabled, Const) and enabled.value is True
    if not isinstance(module, Object) or not known:
        return None
    shard = unit_of(trace, module)
    if shard is None or shard.module is not module or not program.together(call.site, shard.site):
        return None
    backward = next((b for b in trace.calls(*BACKWARDS) if _follows(program, b, call)), None)
    steps = [s for s in trace.calls("step") if _steps(s, module) and _follows(program, s, call)]
    step = next((s for s in steps if backward and s.time > backward.time), None)
    if backward is None or step is None or _is_undone(trace, module, call, step, later):
        return None
    return UnfinalizedStep(call, shard, backward, step)


def _is_undone(trace: Trace, module: Object, call: Call, step: Call, later: list[Call]) -> bool:
    """Whether the mode is set again before the step, or unknown code has the module."""
    family = {module, *module.ancestors()}
    escaped = [e.time for e in trace.escapes if e.time > call.time and family & {*e.objects}]
    return any(time < step.time for time in (*escaped, *(other.time for other in later)))


def _follows(program: Program, event: Call, call: Call) -> bool:
    """Whether an event comes after the call, in a later iteration at the latest."""
    return event.time > call.time or share_loop(program, event.site, call.site)


def _steps(step: Call, module: Object) -> bool:
    """Whether an optimizer of parameters of ``module`` makes this step."""
    optimizer = followed(step.receiver)
    if not isinstance(optimizer, Object):
        return False
    owners = [capture.module for capture in optimizer.captures]
    return any(module in (owner, *owner.ancestors()) for owner in owners)


def reports(program: Program) -> Iterator[Report]:
    for fact in unfinalized_steps(program):
        site, backward, step = fact.manual.site, fact.backward.site, fact.step.site
        yield Report(
            program.span(site),
            f"nothing calls `{FINALIZE}` before the step {program.where(step, site)}: parameters "
            "of units whose inputs need no gradient, such as the root's embeddings, never train",
            "the program must finalize each backward",
            (
                program.evidence(fact.shard.site, "sharded here"),
                program.evidence(backward, "never finalized"),
                program.evidence(step, "skips parameters without gradients"),
                *program.conditions(site),
            ),
            partial(
                finalize,
                Code.of(program.tree(site.path)),
                site.node,
                backward.node if backward.path == site.path else None,
            ),
        )


@builder
def finalize(code: Code, manual: ir.Node, backward: ir.Node | None) -> Fix:
    """Adds a line that finalizes ``backward``, behind it.

    Raises:
        NoFixError: the module has no name there.
    """
    assert isinstance(manual, ir.Call)
    assert isinstance(manual.func, ir.Attribute)
    model = dotted(manual.func.value)
    if backward is None or code.function(backward) is not code.function(manual):
        raise NoFixError(
            "the backward is in another function; call `finalize_backward` after it by hand"
        )
    if model is None:
        raise NoFixError(f"`{code.short(manual.func.value)}` may be another model at the backward")
    statement = code.statement(backward)
    if not isinstance(statement, ir.Expression) or not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` does more than call the backward")
    line = f"{code.indentation(statement)}{model}.{FINALIZE}(){code.newline}"
    at = code.after(statement)
    return Fix(f"call `{model}.{FINALIZE}()`", Safety.UNSAFE, (code.insert_lines(at, line),))
