"""States that rank 0 alone holds, and that every rank writes to one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.state_files import one_per_rank
from fsdplint.engine.interpreter.events import Call, PlainWrite, Trace
from fsdplint.engine.interpreter.shape import leaves
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Taint,
    Value,
    class_names,
    contained,
    key_of,
    taint_of,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.gather_state import write_on_one
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    RANK0_CONFIGS,
)
from fsdplint.knowledge.fsdp import FULL_OPTIM_STATE_DICT, STATE_DICT_TYPE
from fsdplint.knowledge.names import FSDP1, KEYWORD_ONLY
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD510",
    summary="every rank writes the file of a state that rank 0 alone holds",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has one repository of real code yet, where it is right.",
)

# Words of a test that may let one rank through, besides those that name a rank.
_OF_ONE = re.compile(r"should_save|chief|leader|zero|first|saver|writer|proc|node", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A write by all ranks of what a call gives to rank 0 only."""

    write: PlainWrite
    gather: Call


def overwritten(program: Program) -> Iterator[Overwritten]:
    """Writes that no test of the rank guards, of a state that is empty on the other ranks."""
    for trace in program.traces:
        gathers = [call for call in _gathers(trace) if _is_for_rank_0(program, trace, call)]
        for write in trace.of(PlainWrite) if gathers and trace.units() else ():
            if _may_be_of_one(program, write):
                continue
            gather = next((each for each in gathers if _holds(write.value, each)), None)
            if gather is None or _is_asked_for(write, gather):
                continue
            if program.together(write.site, gather.site):
                yield Overwritten(write, gather)


def _gathers(trace: Trace) -> list[Call]:
    names = (GET_MODEL_STATE, GET_OPTIMIZER_STATE, GET_STATE, FULL_OPTIM_STATE_DICT)
    return list(trace.calls(*names, "state_dict", f"{FSDP1}.optim_state_dict"))


def _is_for_rank_0(program: Program, trace: Trace, call: Call) -> bool:
    """Whether the other ranks surely get an empty dict."""
    if any(guard.divergent for guard in call.site.guards):
        return False
    if call.name == FULL_OPTIM_STATE_DICT:
        given = call.arguments.get(3, "rank0_only")
        return not call.arguments.open and (given is None or _is_true(given))
    if call.name.startswith(FSDP1) or call.name == "state_dict":
        return _is_gathered_for_rank_0(program, trace, call)
    options = call.argument(KEYWORD_ONLY, "options")
    if not isinstance(options, Object) or options.open:
        return False
    return all(_is_true(options.keywords.get(k)) for k in ("full_state_dict", "cpu_offload"))


def _is_gathered_for_rank_0(program: Program, trace: Trace, call: Call) -> bool:
    """Whether FSDP1 gives a state under ``with FSDP.state_dict_type(…)`` to rank 0 only."""
    tree = program.tree(call.site.path)
    around = {
        item.value
        for node in tree.ancestors(call.site.node)
        if isinstance(node, ir.With)
        for item in node.items
    }
    position, keyword = 2, "state_dict_config"
    if call.name != "state_dict":
        position, keyword = 3, f"optim_{keyword}"
    for chosen in trace.calls(STATE_DICT_TYPE):
        if chosen.site.node in around and chosen.time < call.time:
            config = chosen.arguments.get(position, keyword)
            known = isinstance(config, Object) and RANK0_CONFIGS & class_names(config.cls)
            return bool(known) and _is_true(config.keywords.get("rank0_only"))  # type: ignore[union-attr]  # an Object
    return False


def _is_true(value: Value | None) -> bool:
    return isinstance(value, Const) and value.value is True


def _may_be_of_one(program: Program, write: PlainWrite) -> bool:
    """Whether one rank alone may write, or each a file of its own."""
    guards = write.site.guards
    if any(program.is_rank_test(each) or _OF_ONE.search(program.words(each)) for each in guards):
        return True
    if any(means_rank(text) for text in _tests_in_the_text(program, write.site)):
        return True
    return write.target is None or one_per_rank(program, write.site, write.target, False, 1)


def _tests_in_the_text(program: Program, site: Site) -> Iterator[str]:
    """Yield the tests that lead to a place, of which one on a constant rank leaves no guard.

    `main(rank=0)` is a run of one process, in which rank 0 is every rank.
    """
    for path, node in site.frames():
        tree = program.tree(path)
        scope = tree.function(node) or tree.module
        for branch in ir.walk_scope(*scope.body):
            if not isinstance(branch, ir.If) or branch.start > node.start:
                continue
            if node.end <= branch.end or leaves(branch.body):
                yield program.text(path, branch.test)


def _is_asked_for(write: PlainWrite, gather: Call) -> bool:
    """Whether a test on the way asks whether there is a state."""
    return gather.result is not None and any(
        key_of(gather.result) == each.key for each in write.site.guards
    )


def _holds(written: Value, gather: Call) -> bool:
    """Whether what a call gave is in what is written: itself, one of several, or a part."""
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
            f"every rank calls `{fact.write.function}`, and on all but rank 0 the state is empty: "
            f"{_harm(fact.write)}",
            "written by every rank",
            (
                program.evidence(gather, "rank 0 gets the state, the others an empty dict"),
                *program.conditions(gather, write),
            ),
            partial(_fix, program, fact),
        )


def _harm(write: PlainWrite) -> str:
    named = () if write.target is None else contained(write.target)
    if taint_of(*named) & Taint.OWN:
        return "each makes up a name, and most of the files are empty"
    return "the file holds what the last one wrote"


def _fix(program: Program, fact: Overwritten) -> Fix | Declined:
    call = fact.write.site.node
    assert isinstance(call, ir.Call)
    return write_on_one(Code.of(program.tree(fact.write.site.path)), call)
