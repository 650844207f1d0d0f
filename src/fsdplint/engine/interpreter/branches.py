"""Branches: `if`, conditional expressions, and `match`, whose cases are arms like an `if`'s.

A branch whose condition is not known is decided once per path where it matters (one of its arms can
reach an event), and otherwise both arms run and what they assign differently becomes a choice. Both
arms also run where the condition depends on the rank or on a loop's element: one path covers all
ranks and all iterations, and the guards of an event say which of them reach it.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.interpreter import declared, tracking
from fsdplint.engine.interpreter.comparison import all_of, any_of, compare, is_instance
from fsdplint.engine.interpreter.expressions import truth
from fsdplint.engine.interpreter.priority import spelled
from fsdplint.engine.interpreter.ranks import launched, on_cuda
from fsdplint.engine.interpreter.shape import (
    assigned,
    exits_cleanly,
    fails_unless,
    leaves,
    returns_value,
)
from fsdplint.engine.interpreter.site import EVERY_RANK
from fsdplint.engine.interpreter.state import Flow, Frame, Group, PathState
from fsdplint.engine.interpreter.values import (
    Condition,
    Const,
    Taint,
    Value,
    choice,
    followed,
    key_of,
    same,
    taint_of,
)
from fsdplint.engine.project.project import BUILTINS, identifiers


def if_(state: PathState, node: ir.If | ir.Case, frame: Frame) -> Flow:
    """Execute an ``if``, or one case of a ``match``."""
    test = truth(state, node.test, frame)
    return _branch(state, test, node.test, node.body, node.orelse, frame)


def conditional(state: PathState, node: ir.Conditional, frame: Frame) -> Value:
    """Evaluate ``body if test else orelse`` like an ``if``: one arm if it may shard, or both.

    One arm as well if a later branch of the function is on the same test.
    """
    test = truth(state, node.test, frame)
    outcome = state.decisions.known(test)
    may_shard = state.priorities.may_shard([node.body, node.orelse])
    if outcome is None and may_shard and not test.taint.divides:
        prefer = state.priorities.may_shard([node.body]) or not state.priorities.may_shard(
            [node.orelse]
        )
        outcome = state.decisions.decide(test, prefer, 0 if state.importing else 2, node)
    if outcome is None and _takes_one_arm(state, test):
        outcome = _decide_for_later(state, test, node.test, frame)
    if outcome is None:
        group = state.group
        with state.under([state.guard(test, node.test, True, frame)]):
            body = state.evaluate(node.body, frame)
        after_body, state.group = state.group, group
        with state.under([state.guard(test, node.test, False, frame)]):
            orelse = state.evaluate(node.orelse, frame)
        state.group = after_body if after_body is state.group else None
        return choice([body, orelse], test.taint | taint_of(body, orelse))
    with state.under([state.guard(test, node.test, outcome, frame)]):
        return state.evaluate(node.body if outcome else node.orelse, frame)


def _branch(
    state: PathState,
    test: Value,
    place: ir.Node,
    body: Items[ir.Stmt],
    orelse: Items[ir.Stmt],
    frame: Frame,
) -> Flow:
    """Follow the arm that the test decides for, or both if that loses nothing.

    If the arm that is left out promises more than the other, or if the test is a constant that a
    function returned, the decisions that the test follows from get the priority of that arm: they
    were made for another branch, and flipping one of them may be the only way to reach it. If it
    leads to events as the other does, the decisions are worth a path at least. An arm that leaves
    the function leaves out the rest of it.
    """
    outcome = state.decisions.known(test)
    if outcome is None and _takes_one_arm(state, test):
        outcome = _decide_branch(state, test, place, body, orelse, frame)
        if outcome is None:
            outcome = _decide_for_later(state, test, place, frame)
    if outcome is None:
        return both(state, test, place, body, orelse, frame)
    declared.tested(state, test, outcome, place, frame)
    taken, other = (body, orelse) if outcome else (orelse, body)
    left_out = _block(frame) if leaves(taken) and isinstance(test, Const) else other
    promise = state.priorities.priority(left_out)
    if promise > state.priorities.priority(taken) or (left_out and isinstance(test, Const)):
        state.decisions.raise_priority(test, promise)
    elif state.priorities.leads_to_events(state.project, left_out, frame.unit):
        state.decisions.raise_priority(test, 1)
    guard = state.guard(test, place, outcome, frame)
    with state.under([guard] if not isinstance(test, Const) else []):
        mark = len(state.guards)
        flow = state.run(taken, frame)
        left = [each for each in state.guards[mark:] if each.ranks != EVERY_RANK]
    state.guards.extend(left)  # ranks that left do not come back
    if flow is Flow.NEXT and not isinstance(test, Const) and leaves(other):
        state.guards.append(guard._replace(early=True))  # only this gets past the branch
    return flow


def _decide_branch(
    state: PathState,
    test: Value,
    place: ir.Node,
    body: Items[ir.Stmt],
    orelse: Items[ir.Stmt],
    frame: Frame,
) -> bool | None:
    """Return the outcome to follow, or None if following both arms at once loses nothing.

    It loses nothing if no arm reaches an event and no arm leaves the block, unless the test asks
    for a distributed run: what such a run sets here goes with what it does further down. The
    preferred arm is that of a distributed run, if this is known, else the one that may shard; of
    two alike, that of a run on CUDA, else the one that goes on. An arm that goes on leads to what
    comes after the branch.
    """
    distributed = launched(test)
    body_may_shard = state.priorities.may_shard(body)
    orelse_may_shard = state.priorities.may_shard(orelse)
    leaves_body, leaves_orelse = leaves(body), leaves(orelse)
    if not (body_may_shard or orelse_may_shard or leaves_body or leaves_orelse):
        return None if distributed is None else state.decisions.decide(test, distributed, 0, place)
    if body_may_shard != orelse_may_shard and not (leaves_body or leaves_orelse):
        prefer = body_may_shard
    else:
        prefer = not leaves_body or leaves_orelse or _is_last_choice(state, place, body, frame)
        distributed = on_cuda(test) if distributed is None else distributed
    prefer = prefer if distributed is None else distributed
    other_leaves = leaves_orelse if prefer else leaves_body
    other = orelse if prefer else body
    if (leaves_body if prefer else leaves_orelse) and not other_leaves:
        other = [*other, *_after(place, frame)]
    if state.priorities.may_shard(other):
        priority = state.priorities.priority(other)
    else:
        priority = 0 if other_leaves and _returns_nothing_asked_for(state, other, frame) else 1
    return state.decisions.decide(test, prefer, priority, place)


def _is_last_choice(state: PathState, place: ir.Node, body: Items[ir.Stmt], frame: Frame) -> bool:
    """True if a branch promises as much as what follows: branches that return, and a ``raise``."""
    priority = state.priorities.priority
    return fails_unless(_block(frame), place) and priority(body) >= priority(_after(place, frame))


def _after(place: ir.Node, frame: Frame) -> list[ir.Stmt]:
    """Return the statements of the active function's body that come after a branch."""
    return [node for node in _block(frame) if node.start >= place.end]


def _block(frame: Frame) -> Items[ir.Stmt]:
    """Return the body of the active function, or of the module."""
    return frame.unit.module.body if frame.function is None else frame.function.function.body


def _returns_nothing_asked_for(state: PathState, arm: Items[ir.Stmt], frame: Frame) -> bool:
    """True if no rule asks about what an arm that ends with a ``return`` gives to the caller.

    It gives a constant or nothing, or it computes with variables of a function that has no event:
    none of them holds what is tracked, or what is PyTorch's.
    """
    if not returns_value(arm):
        return True
    function = frame.function
    if function is None or state.priorities.leads_to_events(
        state.project, function.function.body, frame.unit
    ):
        return False
    own = {*frame.scope.names, function.function.name, *_assigned_names(arm), *BUILTINS}
    others = identifiers(*arm)[0] - own
    if not all(frame.unit.is_own_constant(name) for name in others):
        return False
    return not any(tracking.is_asked_for(state, value) for value in frame.scope.names.values())


def _assigned_names(arm: Items[ir.Stmt]) -> set[str]:
    targets = (target for node in arm for target in assigned(node))
    return {target.id for target in targets if isinstance(target, ir.Name)}


def _decide_for_later(state: PathState, test: Value, place: ir.Node, frame: Frame) -> bool | None:
    """Return the outcome that a later branch of the function would decide for the same test.

    To follow both arms would lose it: of what they assign differently, the path follows the first,
    whatever the later branch decides.
    """
    scope = frame.unit.module if frame.function is None else frame.function.function
    asked, negated = spelled(frame.unit.text, place)
    for later, inverse in state.priorities.branches(scope, frame.unit.text).get(asked, ()):
        if later.start <= place.end:
            continue
        arms = (later.body, later.orelse) if inverse is negated else (later.orelse, later.body)
        outcome = _decide_branch(state, test, place, *arms, frame)
        if outcome is not None:
            return outcome
    return None


def both(
    state: PathState,
    test: Value,
    place: ir.Node,
    body: Items[ir.Stmt],
    orelse: Items[ir.Stmt],
    frame: Frame,
) -> Flow:
    """Execute both arms one after the other from the same variables, and join what they leave.

    Only variables and the state of the process group are restored between the arms. An object that
    the first arm changes stays changed for the second. Events are still sound evidence, since each
    has the guards of its arm, and a finding checks that the guards of its events go together. The
    absence of an event in a joined region proves nothing; rules ask `engine.must` for that.

    If only one arm goes on, what follows depends on the test, so its guard stays (``early``). The
    ranks that took the other arm are gone, unless it ended in an error: a rank that fails ends the
    others too, so none is left waiting.
    """
    before, group, on_yield = dict(frame.scope.names), state.group, frame.on_yield
    flows = []
    results = []
    groups: list[Group | None] = []
    yielded = False
    arms = [(True, body), (False, orelse)]
    apart = _takes_one_arm(state, test)
    if _runs_orelse_first(test):
        arms.reverse()
    for taken, arm in arms:
        frame.scope.names.clear()
        frame.scope.names.update(before)
        state.group, frame.on_yield = group, on_yield
        state.undecided += 1
        decided = len(state.decisions.made)
        with state.under([state.guard(test, place, taken, frame)]):
            flows.append(state.run(arm, frame))
        state.undecided -= 1
        if apart:
            state.decisions.hold_only_where(test, taken, decided)
        yielded |= frame.on_yield is not on_yield
        results.append(dict(frame.scope.names))
        groups.append(state.group)
    frame.on_yield = None if yielded else on_yield
    _join(frame, flows, results)
    state.group = _group_after(flows, groups)
    if Flow.NEXT in flows and flows[0] is not flows[1]:
        _one_goes_on(state, test, place, arms, flows, frame)
    return flows[0] if flows[0] is flows[1] else Flow.NEXT


def _one_goes_on(
    state: PathState,
    test: Value,
    place: ir.Node,
    arms: list[tuple[bool, Items[ir.Stmt]]],
    flows: list[Flow],
    frame: Frame,
) -> None:
    """Guard what follows two arms of which one goes on, since it depends on the test."""
    on = flows.index(Flow.NEXT)
    if _takes_one_arm(state, test) and not state.undecided:
        state.decisions.assume(test, arms[on][0])
    passed = state.guard(test, place, arms[on][0], frame)
    aborted = flows[1 - on] is Flow.RAISE and not exits_cleanly(arms[1 - on][1])
    ranks = EVERY_RANK if aborted else passed.ranks
    state.guards.append(passed._replace(early=True, ranks=ranks))


def _takes_one_arm(state: PathState, test: Value) -> bool:
    """True if a run takes one arm of a branch: each rank and each iteration the same.

    `int(os.environ.get("RANK", -1)) != -1` asks for the rank, and is true on each that there is.
    """
    if state.importing or state.enumerating:
        return False
    return not test.taint.divides or launched(test) is not None


def _group_after(flows: list[Flow], groups: list[Group | None]) -> Group | None:
    """Return the state of the process group after both arms: in those that go on, if any do."""
    going = [group for flow, group in zip(flows, groups, strict=True) if flow is Flow.NEXT]
    known = set(going or groups)
    return known.pop() if len(known) == 1 else None


def _join(frame: Frame, flows: list[Flow], results: list[dict[str, Value]]) -> None:
    """Set the variables after both arms: those of the arm that goes on, or a choice of the two."""
    names = frame.scope.names
    names.clear()
    if flows[0] is not flows[1] and Flow.NEXT in flows:
        names.update(results[flows.index(Flow.NEXT)])
        return
    for name in {**results[0], **results[1]}:
        options = [result[name] for result in results if name in result]
        one = len(options) == 1 or same(options[0], options[1])
        names[name] = options[0] if one else choice(options)


def _runs_orelse_first(test: Value) -> bool:
    """True if the second of two arms that both run is executed first.

    The order of the arms in the text is no evidence: `rank != 0` runs like `rank == 0`. Of
    `step % n == 0` and `step % n` the arm for most iterations runs first, as it does in a real run.
    """
    negated = isinstance(test, Condition) and test.op == "not"
    inner = test.operands[0] if isinstance(test, Condition) and negated else test
    equal = isinstance(inner, Condition) and inner.op == "=="
    by_element = test.taint & Taint.ELEMENT and not test.taint & Taint.RANK
    return negated is not (equal and bool(by_element))


def match(state: PathState, node: ir.Match, frame: Frame) -> Flow:
    """Execute a ``match``: its cases are nested arms that test the innermost subject."""
    frame.subjects.append(state.evaluate(node.subject, frame))
    try:
        return state.run(node.body, frame)
    finally:
        frame.subjects.pop()


def matches(state: PathState, node: ir.Matches, frame: Frame) -> Value:
    """Return whether the subject matches a case, and bind the names of its patterns."""
    subject = frame.subjects[-1] if frame.subjects else state.unknown()
    for name in node.names:
        frame.scope.names[name] = subject if name == node.whole else state.unknown()
    if not node.patterns:
        return Const(True)
    return any_of([_alternative(state, each, subject, frame) for each in node.patterns])


def _alternative(state: PathState, node: ir.Pattern, subject: Value, frame: Frame) -> Value:
    """Return whether the subject matches one pattern."""
    tests: list[Value] = []
    if node.value is not None:
        tests.append(compare("Equal", subject, state.evaluate(node.value, frame)))
    if node.cls is not None:
        tests.append(is_instance(followed(subject), [state.evaluate(node.cls, frame)]))
    if node.partly:  # equal patterns of one subject decide alike
        text = " ".join(frame.unit.text[node.start : node.end].split())
        tests.append(state.unknown(taint_of(subject), key=("case", key_of(subject), text)))
    return all_of(tests)
