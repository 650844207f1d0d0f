"""Calls of the project's functions: their frames and parameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.interpreter import declared, tracking
from fsdplint.engine.interpreter.shape import assigned
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    FunctionValue,
    Mapping,
    Object,
    Origin,
    Scope,
    Sequence,
    Taint,
    Value,
    choice,
    taint_of,
)
from fsdplint.engine.project.project import identifiers
from fsdplint.knowledge import ranks
from fsdplint.knowledge.ranks import Role

# Decorators that return what the function returns.
_HAND_ON = frozenset({"classmethod", "staticmethod"})
_RANK_PARAMETERS = frozenset({"rank", "local_rank", "global_rank"})


def invoke(
    state: PathState,
    function: FunctionValue,
    args: list[Value],
    keywords: dict[str, Value],
    frame: Frame,
    node: ir.Node,
    *,
    more: bool = False,
) -> Value:
    """Execute a project function and return its result; unknown where calls are nested too deeply.

    Args:
        more: whether further keyword arguments may be given that are not known.
    """
    again = _runs_enough(state, function, [*args, *keywords.values()])
    if again or len(state.calls) >= state.project.budget.depth:
        if not again:
            _stopped_at(state, function)
        tracking.used(state, state.tick(), "?", [*args, *keywords.values()], node, frame)
        state.note_unread_code()
        return state.unknown(taint_of(*args))
    state.reached.add(function.function)
    if state.trace.method_code is not None:
        state.trace.method_code.add(
            (function.scope.unit.path, function.function.start, function.function.end)
        )
    scope = Scope({}, function.scope, function.scope.unit)
    inner = Frame(scope, function.scope.unit, function, _receiver(state, function, args, frame))
    inner.loops = frame.loops
    inner.on_yield, state.on_yield = state.on_yield, None
    _bind_parameters(state, function, args, keywords, inner, more)
    mark, decided = len(state.guards), len(state.decisions.made)
    inner.mark = mark
    state.calls.append((frame.unit.path, node))
    state.enter_function(function.function)
    try:
        with state.under([] if function.only is None else [function.only]):
            state.run(function.function.body, inner)
    finally:
        state.calls.pop()
        state.active.pop()
        del state.guards[mark:]
    if function.function.is_generator:
        if decorators(function.function) - _HAND_ON:
            return state.unknown()  # a with statement gets what a context manager yields
        return Sequence([], inner.yielded or [NONE], "generator")
    result = choice(inner.returned) if inner.returned else NONE
    state.decisions.note_source(result, decided)
    return result


def _runs_enough(state: PathState, function: FunctionValue, given: list[Value]) -> bool:
    """True if a function that calls itself need not run again.

    It runs twice, which covers what it does to what it is called on again. Once is enough if it has
    no event, gets nothing that rules ask about and sets no attribute of that, like a loader of
    nested settings.
    """
    active = state.active.count(function.function)
    if active != 1:
        return active > 1
    body, unit = function.function.body, function.scope.unit
    if state.priorities.leads_to_events(state.project, body, unit) or _sets_attributes(body):
        return False
    return not any(tracking.is_asked_for(state, each) for each in given)


def _sets_attributes(body: Items[ir.Stmt]) -> bool:
    """True if statements may set an attribute of something."""
    names, _ = identifiers(*body)
    targets = (target for statement in body for target in assigned(statement))
    return "setattr" in names or any(isinstance(target, ir.Attribute) for target in targets)


def _stopped_at(state: PathState, function: FunctionValue) -> None:
    """Record an early stop for a call that is nested too deeply, if it may cause an event."""
    unit = function.scope.unit
    if not state.importing and state.priorities.leads_to_events(
        state.project, function.function.body, unit
    ):
        reason = f"calls nested more than {state.project.budget.depth} deep"
        state.project.stop_early(state.trace.path, state.trace.entry, reason)


def _bind_parameters(
    state: PathState,
    function: FunctionValue,
    args: list[Value],
    keywords: dict[str, Value],
    inner: Frame,
    more: bool,
) -> None:
    """Bind the parameters to arguments and defaults; an unknown value where both are missing."""
    names, left, extra = inner.scope.names, deque(args), dict(keywords)
    for parameter in function.function.parameters:
        name = parameter.name
        if parameter.kind == "*":
            names[name] = Sequence(list(left), kind="tuple")
            left.clear()
        elif parameter.kind == "**":
            others = Mapping(dict(extra.items()))
            others.rest += [state.unknown()] if more else []
            names[name], extra = others, {}
        elif parameter.kind == "positional" and left:
            names[name] = left.popleft()
            extra.pop(name, None)
        elif name in extra:
            names[name] = extra.pop(name)
        elif parameter.default is not None and not more:
            names[name] = _default(state, parameter.default, function)
        else:
            made = state.unknown(key=("parameter", id(function.function), name))
            made.step, names[name] = name, made
            if parameter.default is not None:
                names[name] = choice([_default(state, parameter.default, function), made])


def _default(state: PathState, node: ir.Expr, function: FunctionValue) -> Value:
    return state.evaluate(node, Frame(function.scope, function.scope.unit))


def _receiver(
    state: PathState, function: FunctionValue, args: list[Value], frame: Frame
) -> Value | None:
    """Return the ``self`` of a call, and note on what a method runs.

    A nested function sees that of the method it is defined in.
    """
    if function.owner is None:
        return frame.receiver
    receiver = args[0] if args else None
    if isinstance(receiver, Object):
        state.receivers.setdefault(function.function, set()).add(receiver)
    return receiver


def open_parameters(
    state: PathState, function: FunctionValue, receiver: Value | None
) -> list[Value]:
    """Return arguments for an entry, of which nothing is known but the parameters' names."""
    made: list[Value] = []
    names = {parameter.name for parameter in function.function.parameters}
    for parameter in function.function.parameters:
        if parameter.kind in ("*", "**"):
            break
        if receiver is not None and not made:
            made.append(receiver)
            continue
        taint = Taint.RANK if parameter.name in _RANK_PARAMETERS else Taint.NONE
        value = state.new(Origin.PARAMETER, taint=taint)
        value.step = parameter.name
        value.role = _role_of_parameter(parameter.name, names)
        value.taint |= Taint.RANK if value.role is Role.NUMBER else Taint.NONE
        declared.annotated(
            state, value, parameter.annotation, Frame(function.scope, function.scope.unit)
        )
        made.append(value)
    return made


def _role_of_parameter(name: str, names: set[str]) -> Role | None:
    """Return the role of a parameter that a launcher gives, judged from all ``names``."""
    has_size = bool(names & ranks.SIZE_PARAMETERS)
    if name in ranks.PARAMETERS or (has_size and name in ranks.PARAMETERS_BESIDE_SIZE):
        return Role.NUMBER
    return Role.SIZE if name in ranks.SIZE_PARAMETERS else None


def decorators(function: ir.Function) -> set[str]:
    """Return the last name of every decorator of a function."""
    found = set()
    for node in function.decorators:
        node = node.func if isinstance(node, ir.Call) else node
        if isinstance(node, (ir.Name, ir.Attribute)):
            found.add(node.id if isinstance(node, ir.Name) else node.attr)
    return found
