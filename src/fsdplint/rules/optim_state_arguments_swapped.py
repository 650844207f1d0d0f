"""Calls of FSDP1's `optim_state_dict_to_load` with the argument order of torch 2.0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught, is_for_some_releases
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import OPTIM_STATE_DICT_TO_LOAD
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD704",
    summary="`optim_state_dict_to_load` is called with the argument order of torch 2.0",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)

# The first release that takes the model first. Source: `optim_state_dict_to_load` in torch 2.0 to
# 2.15.
_MODEL_FIRST = (2, 1, 0)


@dataclass(frozen=True, slots=True)
class Swapped:
    """A call whose second argument is the model."""

    call: Call
    shard: Sharding


def swapped(program: Program) -> Iterator[Swapped]:
    """Yield calls that get a wrapped model instead of an optimizer."""
    if not program.torch.concerns(lower=_MODEL_FIRST):
        return
    for trace in program.traces:
        for call in trace.calls(OPTIM_STATE_DICT_TO_LOAD):
            given = call.arguments.args
            if len(given) < 3 or call.arguments.open or is_caught(program, call.site):
                continue
            shard = _wrapper(trace, call, given[1])
            if shard is None or _wrapper(trace, call, given[0]) is not None:
                continue
            if not is_for_some_releases(trace, call.site):
                yield Swapped(call, shard)


def _wrapper(trace: Trace, call: Call, value: object) -> Sharding | None:
    """Return the code, other than ``call``, that shards or declares a value with FSDP1."""
    for each in trace.units() if isinstance(value, Object) else ():
        beside = each.site.node is not call.site.node
        if each.generation is Generation.FSDP1 and each.module is value and beside:
            return each
    return None


def reports(program: Program) -> Iterator[Report]:
    for fact in swapped(program):
        site = fact.call.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` takes the model, the optimizer and then "
            "the state; this call passes the state first, as in torch 2.0, and crashes",
            "wrong argument order",
            (
                program.evidence(fact.shard.site, "FSDP1 model from here on"),
                *program.conditions(site),
            ),
            partial(_fix, program, site.path, site.node),
        )


def _fix(program: Program, path: str, call: ir.Call) -> Fix | Declined:
    old = program.torch.overlaps(upper=_MODEL_FIRST) and program.torch.lower != (0, 0, 0)
    return model_first(Code.of(program.tree(path)), call, Safety.UNSAFE if old else Safety.SAFE)


@builder
def model_first(code: Code, call: ir.Call, safety: Safety) -> Fix:
    """Move the first of three arguments behind the other two."""
    plain = [each for each in call.args if each.keyword is None and not each.star]
    if len(plain) < 3 or code.comments(plain[0].start, plain[2].end):
        raise NoFixError(
            f"`{code.short(call)}` has comments or unpacked arguments; reorder them by hand"
        )
    texts = [code.slice(each) for each in (plain[1], plain[2], plain[0])]
    edits = tuple(
        code.edit(each.start, each.end, text) for each, text in zip(plain[:3], texts, strict=True)
    )
    return Fix("pass the model and the optimizer first", safety, edits)
