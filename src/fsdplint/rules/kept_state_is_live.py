"""State dicts that are kept without a copy while the model changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.loops import leaves_around, loops_around
from fsdplint.engine.facts.sharding import exclude_each_other, runs_alone, sharding_of
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.values import (
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    Sequence,
    StateDict,
    Tensor,
    Value,
    contained,
    followed,
    may_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_STATE,
    LOADS,
    SAVES,
    SET_MODEL_STATE,
)
from fsdplint.knowledge.launch import MOVES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD514",
    summary="a state dict is kept without a copy, so later updates overwrite it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

_TAKES = ("state_dict", GET_MODEL_STATE, GET_STATE)
_LOADS = ("load_state_dict", SET_MODEL_STATE)


class Harm(Enum):
    """How the use of the state fails."""

    RESTORES_NOTHING = "restores nothing"
    NOT_THE_BEST = "not the best"
    OWN_AVERAGE = "an average of itself"


@dataclass(frozen=True, slots=True)
class LiveState:
    """A state that shares its memory with the parameters.

    Attributes:
        taken: the call that returns it.
        change: a step, or a load, that overwrites it.
        use: the call that needs its earlier values.
    """

    taken: Call
    shard: Shard
    change: Call
    use: Call
    harm: Harm


def live_states(program: Program) -> Iterator[LiveState]:
    """Yield states of FSDP2 models that are used as if they were copies."""
    for trace in program.traces:
        if any(s.generation is Generation.FSDP2 for s in trace.of(Shard)) and not runs_alone(trace):
            yield from (fact for fact in _of_trace(program, trace) if _certain(program, fact))


def _of_trace(program: Program, trace: Trace) -> Iterator[LiveState]:
    for use, state, sure in _uses(trace):
        taken = _taken(trace, state, use)
        shard = None if taken is None else sharding_of(trace, state.owner, before=taken.time)
        if taken is None or shard is None or _comes_apart(trace, state, taken, use):
            continue
        changes = list(_changes(trace, state))
        between = [each for each in changes if sure and taken.time < each.time < use.time]
        best = next((each for each in changes if _is_best(program, taken, each, use)), None)
        if best is not None and use.name in (*_LOADS, *SAVES):
            yield LiveState(taken, shard, best, use, Harm.NOT_THE_BEST)
        elif between and use.name in _LOADS and _target(use) is state.owner:
            yield LiveState(taken, shard, between[-1], use, Harm.RESTORES_NOTHING)
        elif between and _averages(trace, state, use):
            yield LiveState(taken, shard, between[-1], use, Harm.OWN_AVERAGE)


def _certain(program: Program, fact: LiveState) -> bool:
    sites = (fact.taken.site, fact.change.site, fact.use.site)
    apart = any(exclude_each_other(sites[2], site) for site in sites[:2])
    return not apart and all(program.together(site, fact.shard.site) for site in sites)


# The state and its uses


def _uses(trace: Trace) -> Iterator[tuple[Call, StateDict, bool]]:
    """Yield loads, saves and in-place changes, each with the live state that it gets.

    The last item is True if it certainly gets the state; otherwise it may get what a loop left in
    the same variable.
    """
    for use in trace.calls(*_LOADS, *SAVES, "lerp_", "mul_"):
        if use.name in SAVES:
            given = use.argument(0, "state_dict")
        elif use.name in _LOADS:
            at = (0, "state_dict") if use.receiver is not None else (1, "model_state_dict")
            given = use.arguments.get(*at)
        else:
            given = use.receiver
        sure = _live(given, loose=False)
        yield from ((use, state, bool(sure)) for state in sure or _live(given, loose=True))


def _live(value: Value | None, *, loose: bool, depth: int = 0) -> list[StateDict]:
    """Return the models' states in a value, if all its possible values are live, or nothing.

    Args:
        loose: whether an unknown value counts as nothing, too.
    """
    options = [each for each in may_be(value) if not _is_nothing(each, loose)]
    if len(options) == 1 and isinstance(options[0], (Mapping, Sequence)) and depth < 4:
        held = options[0]
        items = held.items.values() if isinstance(held, Mapping) else held.items
        each = [_live(item, loose=loose, depth=depth + 1) for item in (*items, *held.rest)]
        return [state for states in each for state in states]
    states = [each for each in options if isinstance(each, StateDict)]
    known = len(states) == len(options) and all(map(_is_live, states))
    return states[:1] if known and len({state.source.node for state in states}) == 1 else []


def _is_live(state: StateDict) -> bool:
    of_model = state.optimizer is None and state.generation is Generation.FSDP2
    return of_model and state.live and not state.escaped


def _is_nothing(value: Value, loose: bool) -> bool:
    if isinstance(value, Mapping):
        return not value.items and not value.rest
    if isinstance(value, Object):
        made = value.site or value.file or value.parent or value.made_by
        return loose and value.origin is Origin.UNKNOWN and made is None
    return isinstance(value, Const) and value.value is None


def _taken(trace: Trace, state: StateDict, use: Call) -> Call | None:
    """Return the last call before ``use`` that returned the state."""
    before = [call for call in trace.calls(*_TAKES) if call.time < use.time]
    return next((call for call in reversed(before) if call.site == state.source), None)


def _comes_apart(trace: Trace, state: StateDict, taken: Call, use: Call) -> bool:
    """Whether the parameters may get new memory, or the state other tensors."""
    around = (state.owner, *state.owner.ancestors())
    calls = (call for call in trace.of(Call) if taken.time < call.time < use.time)
    for call in calls:
        if call.name in (*MOVES, "unshard") and any(call.receiver is each for each in around):
            return True
        if call.name == "load_state_dict" and call.arguments.get(2, "assign") is not None:
            return True
        given = (v for argument in call.arguments.values() for v in contained(argument))
        filled = (v for v in given if isinstance(v, StateDict) and v.source == state.source)
        if call.name in LOADS and any(filled):
            return True
    return any(taken.time < shard.time < use.time for shard in trace.of(Shard))


def _changes(trace: Trace, state: StateDict) -> Iterator[Call]:
    """Yield steps of the model's optimizers, and loads of other states into the model."""
    for call in trace.calls("step"):
        captured = call.receiver.captures if isinstance(call.receiver, Object) else ()
        if any(_overlaps(capture, state.owner) for capture in captured):
            yield call
    for call in trace.calls("load_state_dict"):
        given = followed(call.arguments.get(0, "state_dict"))
        own = isinstance(given, StateDict) and given.owner is state.owner and given.live
        if call.receiver is state.owner and given is not None and not own:
            yield call


def _overlaps(capture: Parameters, owner: Object) -> bool:
    module = capture.module
    inside = module is owner or owner in module.ancestors()
    return inside or (module in owner.ancestors() and not capture.filtered)


def _target(load: Call) -> Value | None:
    return load.receiver if load.receiver is not None else load.argument(0, "model")


def _averages(trace: Trace, state: StateDict, use: Call) -> bool:
    """Whether the use adds the model's own weights to a tensor of the state, in place."""
    if use.name == "lerp_":
        return _is_own(use.argument(0, "end"), state)
    added = (call for call in trace.calls("add_") if call.time > use.time)
    return any(
        isinstance(call.site.node, ir.Call)
        and isinstance(call.site.node.func, ir.Attribute)
        and call.site.node.func.value is use.site.node
        and _is_own(call.argument(0, "other"), state)
        for call in added
    )


def _is_own(value: Value | None, state: StateDict) -> bool:
    """Whether a value is certainly a weight of the model."""
    if isinstance(value, StateDict):
        return value.owner is state.owner and value.live and value.optimizer is None
    of_model = isinstance(value, (Parameters, Tensor)) and value.module is state.owner
    return of_model and not (isinstance(value, Tensor) and value.partial)


# The best state so far


def _is_best(program: Program, taken: Call, change: Call, use: Call) -> bool:
    """Whether a loop keeps the best state and trains on, and has ended at the use."""
    around = loops_around(program, taken.site) & loops_around(program, change.site)
    if change.name != "step" or use.time < taken.time:
        return False
    if not around - loops_around(program, use.site):
        return False
    frames = taken.site.frames()
    if any(leaves_around(program.tree(path), node) for path, node in frames):
        return False
    return any(
        _is_record(above)
        for path, node in frames
        for above in program.tree(path).ancestors(node)
        if isinstance(above, ir.If)
    )


def _is_record(branch: ir.If) -> bool:
    """Whether a branch compares a value with the best one and then assigns the best one."""
    tests = [node for node in ir.walk(branch.test) if isinstance(node, ir.Compare)]
    compared = {
        side.id if isinstance(side, ir.Name) else side.attr
        for test in tests
        if test.op in _ORDERS
        for side in (test.left, test.right)
        if isinstance(side, (ir.Name, ir.Attribute))
    }
    assigned = {
        target.id if isinstance(target, ir.Name) else target.attr
        for statement in branch.body
        for node in ir.walk(statement)
        if isinstance(node, ir.Assign)
        for target in node.targets
        if isinstance(target, (ir.Name, ir.Attribute))
    }
    return bool(compared & assigned)


_ORDERS = frozenset({"LessThan", "GreaterThan", "LessThanEqual", "GreaterThanEqual"})


# Reports


def reports(program: Program) -> Iterator[Report]:
    for fact in live_states(program):
        site, change, use = fact.taken.site, fact.change.site, fact.use.site
        text = program.text(site.path, site.node)
        by = program.text(change.path, change.node)
        yield Report(
            program.span(site),
            f"`{text}` shares memory with the parameters, so `{by}` "
            f"{program.where(change, site)} overwrites it: {_words(program, fact)}",
            "not a copy",
            (
                program.evidence(fact.shard.site, "parameters are sharded here"),
                program.evidence(change, "overwrites the kept state"),
                program.evidence(use, "expects the earlier state"),
                *program.conditions(site, change, use),
            ),
            partial(_copy, program, fact),
        )


def _words(program: Program, fact: LiveState) -> str:
    site, use = fact.taken.site, fact.use.site
    text, where = program.text(use.path, use.node), program.where(use, site)
    if fact.harm is Harm.RESTORES_NOTHING:
        return f"`{text}` {where} restores nothing"
    if fact.harm is Harm.OWN_AVERAGE:
        return f"`{text}` {where} averages the weights with themselves"
    return f"`{text}` {where} gets the latest weights, not the best"


@builder
def _copy(program: Program, fact: LiveState) -> Fix:
    site = fact.taken.site
    if fact.taken.name == GET_STATE:
        raise NoFixError(
            "the call returns the optimizer's state, too; copy only the model's state by hand"
        )
    code = Code.of(program.tree(site.path))
    imports = Imports(code, code.statement(site.node))
    copy = imports.module("copy", "copy")
    node = site.node
    edits = (
        *imports.edits(),
        code.edit(node.start, node.end, f"{copy}.deepcopy({code.slice(node)})"),
    )
    return Fix("keep a copy of the state dict", Safety.UNSAFE, edits)
