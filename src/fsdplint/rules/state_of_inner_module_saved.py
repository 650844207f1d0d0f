"""Files with the state dict of the module inside an FSDP1 wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import is_a, with_parameters, wrapped_classes
from fsdplint.engine.facts.sharding import is_summoned, wrapping_of
from fsdplint.engine.facts.state_files import is_memory
from fsdplint.engine.interpreter.events import Call, PlainWrite, Shard
from fsdplint.engine.interpreter.values import Object, Value, class_names, contained
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import WRAPPED, Generation
from fsdplint.knowledge.modules import hugging_face_blocks
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD512",
    summary="a saved state dict bypasses the FSDP1 wrapper that would gather it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)


@dataclass(frozen=True, slots=True)
class InnerState:
    """A file with a state that bypasses the wrapper, which would gather it."""

    write: PlainWrite
    taken: Call
    shard: Shard


def inner_states(program: Program) -> Iterator[InnerState]:
    """Yield writes of ``model.module.state_dict()`` where the wrapper has parameters itself."""
    for trace in program.traces:
        taken = {id(c.result): c for c in trace.calls("state_dict") if c.site in trace.inside}
        for write in trace.of(PlainWrite) if taken else ():
            call = next((taken[id(v)] for v in _held(write.value) if id(v) in taken), None)
            if call is None or (write.target is not None and is_memory(write.target)):
                continue
            inner = call.receiver
            shard = wrapping_of(trace, inner, call.time) if isinstance(inner, Object) else None
            if shard is None or is_summoned(program, call.site) or not _holds_some(shard):
                continue
            if program.together(write.site, shard.site):
                yield InnerState(write, call, shard)


def _held(value: Value) -> Iterator[Value]:
    for each in contained(value):
        yield each
        if isinstance(each, Object):
            yield from each.ancestors()


def _holds_some(shard: Shard) -> bool:
    """Whether the wrapper certainly has parameters that no wrapped submodule has."""
    if shard.wraps_children is False:
        return True
    classes, model = wrapped_classes(shard), shard.module
    if classes is None or shard.generation is not Generation.FSDP1:
        return False
    if any(hugging_face_blocks(name) is not None for name in class_names(model.cls)):
        return bool(classes)  # its embedding is in none of its blocks
    own = (
        layer
        for layer in with_parameters(model, ())
        if not any(is_a(part, cls) for part in (layer, *layer.ancestors()) for cls in classes)
    )
    return next(own, None) is not None


def reports(program: Program) -> Iterator[Report]:
    for fact in inner_states(program):
        site = fact.write.site
        yield Report(
            program.span(fact.taken.site),
            f"`{program.text(fact.taken.site.path, fact.taken.site.node)}` bypasses the FSDP1 "
            "wrapper that gathers the state: the file holds only one rank's shard of the wrapper's "
            "own parameters",
            "bypasses the FSDP1 wrapper",
            (
                program.evidence(site, "saved here"),
                program.evidence(fact.shard.site, "wrapped by FSDP1 here"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(_fix, program, fact.taken),
        )


def _fix(program: Program, taken: Call) -> Fix | Declined:
    if any(map(program.is_rank_test, taken.site.guards)):
        return Declined(
            "only some ranks reach this call, and the wrapper's gather would hang; take its "
            "state on every rank by hand"
        )
    code, call = Code.of(program.tree(taken.site.path)), taken.site.node
    inner = (
        call.func.value
        if isinstance(call, ir.Call) and isinstance(call.func, ir.Attribute)
        else None
    )
    named = isinstance(inner, ir.Attribute) and inner.attr in WRAPPED and dotted(inner.value)
    if not isinstance(inner, ir.Attribute) or not named:
        return Declined(
            "this line does not name the wrapper; call `state_dict` of the wrapper by hand"
        )
    edit = code.edit(inner.value.end, inner.end, "")
    return Fix("take the state dict of the wrapper", Safety.UNSAFE, (edit,))
