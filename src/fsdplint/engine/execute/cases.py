"""``match``: what its cases ask of the subject. That they are arms is up to `execute.branches`."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.execute.comparison import all_of, any_of, compare
from fsdplint.engine.execute.instances import is_instance
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.execute.stores import Stores
from fsdplint.engine.values import Const, Value, key_of, resolved, taint_of


class Cases(Stores):
    def match(self, node: ir.Match, frame: Frame) -> Flow:
        frame.subjects.append(self.evaluate(node.subject, frame))
        try:
            return self.run(node.body, frame)
        finally:
            frame.subjects.pop()

    def matches(self, node: ir.Matches, frame: Frame) -> Value:
        subject = frame.subjects[-1] if frame.subjects else self.unknown()
        for name in node.names:
            frame.scope.names[name] = subject if name == node.whole else self.unknown()
        if not node.patterns:
            return Const(True)
        return any_of([self.alternative(each, subject, frame) for each in node.patterns])

    def alternative(self, node: ir.Pattern, subject: Value, frame: Frame) -> Value:
        """Whether the subject is like one pattern."""
        tests: list[Value] = []
        if node.value is not None:
            tests.append(compare("Equal", subject, self.evaluate(node.value, frame)))
        if node.cls is not None:
            tests.append(is_instance(resolved(subject), [self.evaluate(node.cls, frame)]))
        if node.partly:  # alike wherever the same is asked of the same
            text = " ".join(frame.unit.text[node.start : node.end].split())
            tests.append(self.unknown(taint_of(subject), key=("case", key_of(subject), text)))
        return all_of(tests)
