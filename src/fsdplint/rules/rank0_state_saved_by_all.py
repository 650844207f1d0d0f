"""State dicts that only rank 0 holds and that every rank writes to one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import tests_in_the_text
from fsdplint.engine.facts.rank0_states import states_of_rank_0
from fsdplint.engine.facts.state_files import one_per_rank
from fsdplint.engine.interpreter.events import Call, PlainWrite
from fsdplint.engine.interpreter.values import Object, Taint, Value, contained, key_of, taint_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.gather_state import write_on_one
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD510",
    summary="every rank saves a state dict that is empty on all ranks but 0",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has findings in only one public repository so far; they are correct.",
)

# Words of a test that may let only one rank pass, besides words for a rank.
_OF_ONE = re.compile(r"should_save|chief|leader|zero|first|saver|writer|proc|node", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A write by all ranks of a state that a call returns on rank 0 only."""

    write: PlainWrite
    gather: Call


def overwritten(program: Program) -> Iterator[Overwritten]:
    """Yield writes without a rank test of a state that is empty on the other ranks."""
    for trace in program.traces:
        gathers = list(states_of_rank_0(program, trace))
        for write in trace.of(PlainWrite) if gathers and trace.units() else ():
            if _may_be_of_one(program, write):
                continue
            gather = next((each for each in gathers if _holds(write.value, each)), None)
            if gather is None or _is_asked_for(write, gather):
                continue
            if program.together(write.site, gather.site):
                yield Overwritten(write, gather)


def _may_be_of_one(program: Program, write: PlainWrite) -> bool:
    """Whether only one rank may write, or each rank its own file."""
    guards = write.site.guards
    if any(program.is_rank_test(each) or _OF_ONE.search(program.words(each)) for each in guards):
        return True
    if any(means_rank(text) for text in tests_in_the_text(program, write.site)):
        return True
    return write.target is None or one_per_rank(program, write.site, write.target, False, 1)


def _is_asked_for(write: PlainWrite, gather: Call) -> bool:
    """Whether a condition around the write tests the state."""
    return gather.result is not None and any(
        key_of(gather.result) == each.key for each in write.site.guards
    )


def _holds(written: Value, gather: Call) -> bool:
    """Whether the written value contains the result of a call, or a part of it."""
    return any(
        each is gather.result
        or (isinstance(each, Object) and _is_part(each, gather.result))
        or (isinstance(each, Object) and each.made_by and each.made_by[1] is gather.site.node)
        for each in contained(written)
    )


def _is_part(value: Object, of: Value | None) -> bool:
    return any(above is of for above in value.ancestors())


def reports(program: Program) -> Iterator[Report]:
    for fact in overwritten(program):
        write, gather = fact.write.site, fact.gather.site
        yield Report(
            program.span(write),
            f"every rank calls `{fact.write.function}`, but only rank 0 has the state: "
            f"{_harm(fact.write)}",
            "written by every rank",
            (
                program.evidence(gather, "returns an empty dict elsewhere"),
                *program.conditions(gather, write),
            ),
            partial(_fix, program, fact),
        )


def _harm(write: PlainWrite) -> str:
    named = () if write.target is None else contained(write.target)
    if taint_of(*named) & Taint.OWN:
        return "each rank writes a file of another name, and all but rank 0's are empty"
    return "the other ranks can overwrite the file with an empty dict"


def _fix(program: Program, fact: Overwritten) -> Fix | Declined:
    call = fact.write.site.node
    assert isinstance(call, ir.Call)
    return write_on_one(Code.of(program.tree(fact.write.site.path)), call)
