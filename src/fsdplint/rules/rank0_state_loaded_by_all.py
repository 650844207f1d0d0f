"""Loads of a full state that only rank 0 has, without a broadcast."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.rank0_states import states_of_rank_0
from fsdplint.engine.facts.sharding import runs_alone
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Mapping,
    Object,
    Sequence,
    Taint,
    Value,
    may_be,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.knowledge.checkpoints import SET_MODEL_STATE, SET_OPTIMIZER_STATE, SET_STATE
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD513",
    summary="a state that only rank 0 holds is loaded without a broadcast",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

_BROADCAST = "broadcast_from_rank0"
# Words of functions that may send the state to the other ranks.
_SENDS = re.compile(r"broadcast|scatter|gather|recv|receive|sync")
# The parameters of each call that take a state.
_STATES = {
    SET_MODEL_STATE: ((1, "model_state_dict"),),
    SET_OPTIMIZER_STATE: ((2, "optim_state_dict"),),
    SET_STATE: ((KEYWORD_ONLY, "model_state_dict"), (KEYWORD_ONLY, "optim_state_dict")),
}


@dataclass(frozen=True, slots=True)
class LoneState:
    """A load of a state that is empty on all ranks but some.

    Attributes:
        options: the options of the load.
        gather: the call that returns the state on rank 0, None if a test of the rank decides.
    """

    load: Call
    options: Object
    gather: Call | None


def lone_states(program: Program) -> Iterator[LoneState]:
    """Yield loads of full states on all ranks that need a broadcast and have none."""
    for trace in program.traces:
        loads = trace.calls(*_STATES)
        gathers = list(states_of_rank_0(program, trace)) if loads else []
        for load in loads if not runs_alone(trace) else ():
            options = load.argument(KEYWORD_ONLY, "options")
            if any(guard.divergent for guard in load.site.guards) or not _is_whole(options):
                continue
            assert isinstance(options, Object)
            for position, keyword in _STATES[load.name]:
                state = load.arguments.get(position, keyword)
                gather = _gathered(trace, gathers, state, load)
                if gather is not None or _is_empty_elsewhere(trace, load, state):
                    yield LoneState(load, options, gather)
                    break


def _is_whole(options: Value | None) -> bool:
    """Whether options say that the state is full, and certainly not that rank 0 sends it."""
    if not isinstance(options, Object) or options.open or options.args:
        return False
    if _BROADCAST in options.attrs or "full_state_dict" in options.attrs:
        return False  # set later
    full, sent = options.keywords.get("full_state_dict"), options.keywords.get(_BROADCAST)
    known = isinstance(full, Const) and full.value is True
    return known and (sent is None or (isinstance(sent, Const) and sent.value is False))


def _gathered(trace: Trace, gathers: list[Call], state: Value | None, load: Call) -> Call | None:
    """Return the call that returned the full state, or a pair with it, on rank 0."""
    given = must_be(state)
    for gather in gathers:
        parts = gather.result.items if isinstance(gather.result, Sequence) else [gather.result]
        if gather.time < load.time and given is not None and any(p is given for p in parts):
            shared = [e for e in trace.escapes if gather.time < e.time < load.time]
            return None if any(given in escape.objects for escape in shared) else gather
    return None


def _is_empty_elsewhere(trace: Trace, load: Call, state: Value | None) -> bool:
    """Whether a test of the rank decides that the state is empty."""
    if not isinstance(state, Choice):
        return False
    options = may_be(state)
    held = [each for each in options if not _is_empty(each)]
    if not held or len(held) == len(options):
        return False
    if not state.taint & Taint.RANK and not all(_is_made_by_some(trace, each) for each in held):
        return False
    since = min(each.born if isinstance(each, Object) else 0 for each in held)
    return not any(_SENDS.search(name) for t, name in trace.called if since < t < load.time)


def _is_made_by_some(trace: Trace, value: Value) -> bool:
    """Whether only some ranks make a value."""
    site = value.site if isinstance(value, Object) else None
    if site is None:
        site = next((call.site for call in trace.of(Call) if call.result is value), None)
    return site is not None and any(guard.divergent for guard in site.guards)


def _is_empty(value: Value) -> bool:
    if isinstance(value, Mapping):
        return not value.items and not value.rest and value.factory is None
    return isinstance(value, Const) and value.value is None


def reports(program: Program) -> Iterator[Report]:
    for fact in lone_states(program):
        site = fact.load.site
        function = fact.load.name.rpartition(".")[2]
        yield Report(
            program.span(site),
            f"only rank 0 has the state that `{function}` loads, and `{_BROADCAST}` is not set: "
            "rank 0 hangs, and the other ranks crash or load nothing",
            "empty on the other ranks",
            (*_evidence(program, fact), *program.conditions(site)),
            partial(_broadcast, program, fact.options.site),
        )


def _evidence(program: Program, fact: LoneState) -> Iterator[Evidence]:
    if fact.gather is not None:
        yield program.evidence(fact.gather.site, "returns an empty dict elsewhere")
    if fact.options.site is not None:
        yield program.evidence(fact.options.site, f"lacks `{_BROADCAST}=True`")


@builder
def _broadcast(program: Program, made: Site | None) -> Fix:
    if made is None or not isinstance(made.node, ir.Call):
        raise NoFixError(
            f"the call that builds the options was not found; set `{_BROADCAST}=True` by hand"
        )
    edit = put_argument(Code.of(program.tree(made.path)), made.node, _BROADCAST, "True")
    return Fix("broadcast the state from rank 0", Safety.UNSAFE, (edit,))
