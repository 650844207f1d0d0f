"""``match``: what its cases ask of the subject. That they are arms is up to `execute.branches`."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter.comparison import all_of, any_of, compare
from fsdplint.engine.interpreter.instances import is_instance
from fsdplint.engine.interpreter.state import Flow, Frame, PathState
from fsdplint.engine.interpreter.values import Const, Value, followed, key_of, taint_of


def match(state: PathState, node: ir.Match, frame: Frame) -> Flow:
    frame.subjects.append(state.evaluate(node.subject, frame))
    try:
        return state.run(node.body, frame)
    finally:
        frame.subjects.pop()


def matches(state: PathState, node: ir.Matches, frame: Frame) -> Value:
    subject = frame.subjects[-1] if frame.subjects else state.unknown()
    for name in node.names:
        frame.scope.names[name] = subject if name == node.whole else state.unknown()
    if not node.patterns:
        return Const(True)
    return any_of([_alternative(state, each, subject, frame) for each in node.patterns])


def _alternative(state: PathState, node: ir.Pattern, subject: Value, frame: Frame) -> Value:
    """Whether the subject is like one pattern."""
    tests: list[Value] = []
    if node.value is not None:
        tests.append(compare("Equal", subject, state.evaluate(node.value, frame)))
    if node.cls is not None:
        tests.append(is_instance(followed(subject), [state.evaluate(node.cls, frame)]))
    if node.partly:  # alike wherever the same is asked of the same
        text = " ".join(frame.unit.text[node.start : node.end].split())
        tests.append(state.unknown(taint_of(subject), key=("case", key_of(subject), text)))
    return all_of(tests)
