"""Statements: simple ones, and the blocks of `with` and `try`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.interpreter import branches, calls, declared, tensors
from fsdplint.engine.interpreter.elements import extend, hashable
from fsdplint.engine.interpreter.expressions import truth
from fsdplint.engine.interpreter.functions import decorators
from fsdplint.engine.interpreter.shape import (
    adds_to_itself,
    expects_failed_import,
    falls_back_on_sharding,
    imports_only_what_is_there,
    missing_module,
    only_imports,
)
from fsdplint.engine.interpreter.state import EXIT, Flow, Frame, PathState
from fsdplint.engine.interpreter.stores import bind_target
from fsdplint.engine.interpreter.values import (
    NONE,
    Choice,
    Const,
    Context,
    FunctionValue,
    Mapping,
    Method,
    Origin,
    Sequence,
    Taint,
    Value,
    followed,
    key_of,
)


def expression(state: PathState, node: ir.Expression, frame: Frame) -> Flow:
    value = state.evaluate(node.value, frame)
    stop = isinstance(value, Const) and value.value is EXIT
    return Flow.RAISE if stop else Flow.NEXT


def assign(state: PathState, node: ir.Assign, frame: Frame) -> Flow:
    value = state.evaluate(node.value, frame)
    if adds_to_itself(node):
        value = state.sums.pop(node.value, value)
    for target in node.targets:
        bind_target(state, target, value, frame)
    return Flow.NEXT


def aug_assign(state: PathState, node: ir.AugAssign, frame: Frame) -> Flow:
    """Execute ``target op= value``."""
    old = followed(state.evaluate(node.target, frame))
    value = state.evaluate(node.value, frame)
    extra = followed(value)
    tensors.operated(state, f"{node.op}=", (old, value), node, frame)
    if isinstance(old, Sequence) and isinstance(extra, Sequence):
        extend(state, old, extra, in_loop=frame.loops > 0)
        state.note_change()
        return Flow.NEXT
    if isinstance(node.target, ir.Subscript):
        return Flow.NEXT  # `group["lr"] *= 0.1` replaces no parameter
    kept = tensors.accumulated(state, node.op, value) if frame.loops else None
    if kept is not None:
        bind_target(state, node.target, kept, frame)
        return Flow.NEXT
    if (counted := _counted(node, old, extra, frame)) is not None:
        bind_target(state, node.target, counted, frame)
        return Flow.NEXT
    taint = old.taint | value.taint | (Taint.ELEMENT if frame.loops else Taint.NONE)
    result = state.unknown(taint, key=(node.op, key_of(old), key_of(value)))
    if node.op == "Divide":
        tensors.divided(state, old, value, result, node, frame)
    bind_target(state, node.target, result, frame)
    return Flow.NEXT


def _counted(node: ir.AugAssign, old: Value, step: Value, frame: Frame) -> Const | None:
    """Return the number that a variable counts to, if no loop hides how often it does."""
    if frame.loops or not isinstance(node.target, ir.Name) or node.op not in ("Add", "Subtract"):
        return None
    if not (isinstance(old, Const) and isinstance(step, Const)):
        return None
    if type(old.value) is not int or type(step.value) is not int:
        return None
    number = old.value + step.value if node.op == "Add" else old.value - step.value
    return Const(number, old.taint | step.taint)


def return_(state: PathState, node: ir.Return, frame: Frame) -> Flow:
    frame.returned.append(NONE if node.value is None else state.evaluate(node.value, frame))
    return Flow.RETURN


def raise_(*_: object) -> Flow:
    return Flow.RAISE


def assert_(state: PathState, node: ir.Assert, frame: Frame) -> Flow:
    test = truth(state, node.test, frame)
    if test.taint.divides or state.importing:
        return Flow.NEXT
    known = state.decisions.known(test)
    if known is None:
        known = state.decisions.decide(test, True, 0, node)
        declared.tested(state, test, True, node.test, frame)
    failed = known is False and not isinstance(test, Const)
    return Flow.RAISE if failed else Flow.NEXT


def delete(state: PathState, node: ir.Delete, frame: Frame) -> Flow:
    for target in node.targets:
        if isinstance(target, ir.Name):
            frame.scope.names.pop(target.id, None)
        elif isinstance(target, ir.Subscript) and isinstance(target.index, ir.Constant):
            owner = followed(state.evaluate(target.value, frame))
            if isinstance(owner, Mapping):
                owner.items.pop(hashable(target.index.value), None)
    return Flow.NEXT


def scope(_: PathState, node: ir.Scope, frame: Frame) -> Flow:
    """Find the scopes of names that are declared global or nonlocal."""
    for name in node.names:
        outer = frame.scope.parent
        while outer is not None and outer.parent is not None:
            if node.kind == "nonlocal" and name in outer.names:
                break
            outer = outer.parent
        if outer is not None:
            frame.elsewhere[name] = outer
    return Flow.NEXT


def pass_(*_: object) -> Flow:
    return Flow.NEXT


def break_(*_: object) -> Flow:
    return Flow.BREAK


def continue_(*_: object) -> Flow:
    return Flow.CONTINUE


def with_(state: PathState, node: ir.With, frame: Frame) -> Flow:
    return _enter(state, node.items, node, frame)


def _enter(state: PathState, items: Items[ir.WithItem], node: ir.With, frame: Frame) -> Flow:
    """Enter the contexts in turn; a context manager function runs the rest where it yields."""
    if not items:
        return state.run(node.body, frame)
    item, *others = items
    flows: list[Flow] = []

    def go_on(value: Value) -> None:
        if item.target is not None:
            bind_target(state, item.target, value, frame)
        flows.append(_enter(state, others, node, frame))

    value = _context(state, item.value, go_on, frame)
    if not flows:  # any other context, or a generator function that was not followed
        outer, state.on_meta = state.on_meta, _device_of(state, value)
        go_on(value)
        state.on_meta = outer
    return flows[0]


def _device_of(state: PathState, context: Value) -> bool | None:
    """Return whether modules are built on meta inside a context; None where that depends."""
    options = context.options if isinstance(context, Choice) else (context,)
    metas = [isinstance(option, Context) and option.name == "meta" for option in options]
    return True if all(metas) else None if any(metas) else state.on_meta


def _context(
    state: PathState, node: ir.Expr, go_on: Callable[[Value], None], frame: Frame
) -> Value:
    """Evaluate the expression of a ``with`` item.

    A context manager function of the project gets ``go_on``, which it runs where it yields. The
    body then belongs to the caller: its calls and active functions are those of the ``with``
    statement.
    """
    if not isinstance(node, ir.Call):
        return state.evaluate(node, frame)
    function = followed(calls.evaluate_callee(state, node.func, frame))
    arguments = calls.evaluate_arguments(state, node.args, frame)
    inner = function.function if isinstance(function, Method) else function
    if isinstance(inner, FunctionValue) and "contextmanager" in decorators(inner.function):
        caller = list(state.calls), list(state.active)

        def in_caller(value: Value) -> None:
            inside = state.calls, state.active
            state.calls, state.active = caller
            try:
                go_on(value)
            finally:
                state.calls, state.active = inside

        state.on_yield = in_caller
    result = calls.apply(state, function, arguments, node, frame)
    state.on_yield = None
    return result


def try_(state: PathState, node: ir.Try, frame: Frame) -> Flow:
    """Execute a ``try``; if its handlers matter, also on a path where the body fails at once."""
    if imports_only_what_is_there(node.body):
        flow = state.run((*node.body, *node.orelse), frame)
    else:
        flow = _try_that_may_fail(state, node, frame)
    final = state.run(node.final, frame)
    return final if final is not Flow.NEXT else flow


def _try_that_may_fail(state: PathState, node: ir.Try, frame: Frame) -> Flow:
    handlers = [statement for handler in node.handlers for statement in handler.body]
    # Whether a module is installed is the same for all files.
    what = missing_module(node) or (frame.unit.path, node.start)
    failed: Value = state.new(Origin.UNKNOWN, key=("raises", what))
    fails = state.importing and state.decisions.known(failed)
    for handler in node.handlers:
        if handler.name is not None:
            frame.scope.names.setdefault(handler.name, state.unknown())
    matter = state.priorities.leads_to_events(state.project, handlers, frame.unit)
    falls_back = falls_back_on_sharding(node)
    if (matter or falls_back or _starts_over(node)) and not state.importing:
        priority = state.priorities.priority(handlers)
        fails = state.decisions.decide(failed, falls_back, priority, node)
    if fails:
        guard = state.guard(failed, node.handlers[0], True, frame)
        with state.under([guard]):
            return state.run(handlers, frame)
    outer = state.expecting_failure
    state.expecting_failure |= expects_failed_import(node)
    flow = _attempt(state, node, handlers, failed, frame)
    state.expecting_failure = outer
    return flow


def _starts_over(node: ir.Try) -> bool:
    """True if a handler starts an iterator over that is used up."""
    return any(
        isinstance(statement, ir.Assign)
        and isinstance(statement.value, ir.Call)
        and ir.last_name(statement.value.func) == "iter"
        for handler in node.handlers
        if handler.type is not None and ir.last_name(handler.type) == "StopIteration"
        for statement in handler.body
    )


def _attempt(
    state: PathState, node: ir.Try, handlers: Items[ir.Stmt], failed: Value, frame: Frame
) -> Flow:
    """Execute the body of a `try` that does not fail on this path."""
    if state.importing or only_imports(node.body):
        return branches.both(state, failed, node, handlers, node.body, frame)
    flow = state.run((*node.body, *node.orelse), frame)
    return Flow.NEXT if flow is Flow.RAISE and node.handlers else flow
