"""Expressions: from IR to abstract values, with the events that calls inside them cause."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from fsdplint.engine import ir
from fsdplint.engine.events import Call
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.comparison import compare
from fsdplint.engine.execute.displays import Displays
from fsdplint.engine.execute.elements import chained, element_of
from fsdplint.engine.execute.state import Frame
from fsdplint.engine.values import (
    NONE,
    Arguments,
    Condition,
    Const,
    FunctionValue,
    Object,
    Origin,
    Sequence,
    Taint,
    Value,
    choice,
    key_of,
    resolved,
    taint_of,
)

# Longer texts, and conditions of more operands, are not known.
MAX_TEXT = 10_000
MAX_OPERANDS = 32


class Expressions(Displays):
    @abstractmethod
    def call(self, node: ir.Call, frame: Frame) -> Value: ...

    @abstractmethod
    def matches(self, node: ir.Matches, frame: Frame) -> Value: ...

    def evaluate(self, node: ir.Expr, frame: Frame) -> Value:
        self.steps += 1  # as `spend` does, but for a call that is made at every expression
        if self.steps > self.allowed:
            self.run_out()
        return _HANDLERS[type(node)](self, node, frame)

    # Operators

    def constant(self, node: ir.Constant, frame: Frame) -> Value:
        return Const(node.value)

    def lambda_(self, node: ir.Lambda, frame: Frame) -> Value:
        return FunctionValue(node.function, frame.scope)

    def truth(self, node: ir.Expr, frame: Frame) -> Value:
        """The value that a test is about, each operand of ``and`` and ``or`` a test of its own."""
        if isinstance(node, ir.BoolOp):
            self.spend()
            return self.bool_op(node, frame, tested=True)
        if isinstance(node, ir.Not):
            self.spend()
            inner = self.truth(node.operand, frame)
            if not isinstance(inner, Const):  # a branch hangs on it, even where it is decided
                return Condition("not", (inner,), ("not", key_of(inner)), inner.taint)
            return Const(not inner.value, inner.taint)
        return tensors.look(self, self.evaluate(node, frame), node, frame)

    def conditional(self, node: ir.Conditional, frame: Frame) -> Value:
        test = self.truth(node.test, frame)
        outcome = self.decisions.known(test)
        hot = self.is_hot([node.body, node.orelse])
        if outcome is None and hot and not test.taint.divides:
            prefer = self.is_hot([node.body]) or not self.is_hot([node.orelse])
            outcome = self.decisions.decide(test, prefer, 0 if self.importing else 2, node)
        if outcome is None:
            up = self.group_up
            with self.under([self.guard(test, node.test, True, frame)]):
                body = self.evaluate(node.body, frame)
            state, self.group_up = self.group_up, up
            with self.under([self.guard(test, node.test, False, frame)]):
                orelse = self.evaluate(node.orelse, frame)
            self.group_up = state if state is self.group_up else None
            return choice([body, orelse], test.taint | taint_of(body, orelse))
        with self.under([self.guard(test, node.test, outcome, frame)]):
            return self.evaluate(node.body if outcome else node.orelse, frame)

    def bool_op(self, node: ir.BoolOp, frame: Frame, *, tested: bool = False) -> Value:
        evaluate = self.truth if tested else self.evaluate
        left = self.truth(node.left, frame)
        if isinstance(left, Const):
            absorbs = bool(left.value) == (node.op == "or")
            return left if absorbs else evaluate(node.right, frame)
        up = self.group_up
        with self.under([self.guard(left, node.left, node.op == "and", frame)]):
            right = evaluate(node.right, frame)
        self.group_up = up if up is self.group_up else None
        key = self.interned((node.op, key_of(left), key_of(right)))
        return self.joined(node.op, left, right, key)

    def joined(self, op: str, left: Value, right: Value, key: object) -> Value:
        """``left op right``; of a test with very many operands it is not known what it is of."""
        taint = taint_of(left, right)
        operands = sum(each.size if isinstance(each, Condition) else 1 for each in (left, right))
        if operands > MAX_OPERANDS:
            return self.unknown(taint, key=key)
        return Condition(op, (left, right), key, taint, operands)

    def not_(self, node: ir.Not, frame: Frame) -> Value:
        value = self.truth(node.operand, frame)
        known = self.decisions.known(value)
        if known is not None:
            return Const(not known, value.taint)
        return Condition("not", (value,), ("not", key_of(value)), value.taint)

    def compare(self, node: ir.Compare, frame: Frame) -> Value:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        return tensors.compared(self, node.op, left, right) or compare(node.op, left, right)

    def bin_op(self, node: ir.BinOp, frame: Frame) -> Value:
        left, right = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        if isinstance(left, Sequence) and isinstance(right, Sequence) and node.op == "Add":
            return chained(self, left, right)
        if node.op == "Add" and is_text(left) and is_text(right):
            assert isinstance(left, Const) and isinstance(right, Const)
            return self.text(f"{left.value}{right.value}", taint_of(left, right))
        if node.op == "Modulo" and isinstance(node.left, (ir.Constant, ir.FormattedString)):
            self.look_formatted(right, node.right, frame)
        else:
            if frame.loops and (kept := tensors.accumulated(self, node.op, right)) is not None:
                self.sums[node] = kept
            made = tensors.binary(self, node.op, left, right)
            if made is not None:
                return made
        taint = taint_of(left, right)
        result = self.unknown(taint, key=(node.op, key_of(left), key_of(right)))
        if node.op == "Divide":
            self.divided(left, right, result, node, frame)
        if node.op == "MatrixMultiply":
            given = Arguments([left, right], {})
            site = self.site(node, frame)
            self.emit(Call(self.tick(), site, "torch.matmul", None, given, result))
        return result

    def text(self, text: str, taint: Taint) -> Value:
        return Const(text, taint) if len(text) <= MAX_TEXT else self.unknown(taint)

    def look_formatted(self, value: Value, node: ir.Expr, frame: Frame) -> None:
        """``"%.2f" % value`` asks each tensor for its number."""
        nodes, values = [node], [value]
        if isinstance(node, ir.Collection) and isinstance(value, Sequence):
            nodes, values = list(node.elements), value.items
        for each, place in zip(values, nodes, strict=False):
            tensors.look(self, each, place, frame)

    def named(self, node: ir.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        self.bind_target(node.target, value, frame)
        return value

    def formatted(self, node: ir.FormattedString, frame: Frame) -> Value:
        values = [self.evaluate(value, frame) for value in node.values]
        for value, place in zip(values, node.values, strict=True):
            # With a format it is an error.
            if frame.unit.text[place.end : place.end + 1] in ("}", ")", ","):
                tensors.look(self, value, place, frame)
        known = [value.value for value in values if isinstance(value, Const)]
        if len(known) == len(values) and len(node.literals) == len(values) + 1:
            pieces = [text + str(value) for text, value in zip(node.literals, known, strict=False)]
            return self.text("".join(pieces) + node.literals[-1], taint_of(*values))
        made = self.unknown(taint_of(*values), key=("text", *map(key_of, values)))
        made.site = self.site(node, frame)
        made.args = tuple(v for v in values if isinstance(v, Object) and _is_plain(v))
        return made

    def yield_(self, node: ir.Yield, frame: Frame) -> Value:
        value = NONE if node.value is None else self.evaluate(node.value, frame)
        if node.kind == "await":
            return value
        if frame.on_yield is not None:
            run_body, frame.on_yield = frame.on_yield, None
            run_body(value)
        given = value if node.kind == "yield" else element_of(self, resolved(value))
        frame.yielded.append(given)
        if isinstance(given, Object) and len(self.guards) > frame.mark:
            self.trace.picked.add(given)
        return self.unknown()

    def starred(self, node: ir.Starred, frame: Frame) -> Value:
        return self.evaluate(node.value, frame)

    def opaque(self, node: ir.Opaque, frame: Frame) -> Value:
        values = [self.evaluate(child, frame) for child in node.children]
        return self.unknown(taint_of(*values), key=("opaque", *map(key_of, values)))


def is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _is_plain(value: Object) -> bool:
    """Whether a value in a text is a rank, or an attribute of which nothing else is known."""
    leaf = value.origin is Origin.PART and not (value.attrs or value.elements or value.cls)
    return value.role is not None or leaf


_HANDLERS: dict[type[ir.Node], Callable[..., Value]] = {
    ir.Name: Expressions.name,
    ir.Constant: Expressions.constant,
    ir.Attribute: Expressions.attribute,
    ir.Call: lambda machine, node, frame: machine.call(node, frame),
    ir.Subscript: Expressions.subscript,
    ir.Collection: Expressions.collection,
    ir.DictDisplay: Expressions.dict_display,
    ir.Starred: Expressions.starred,
    ir.Comprehension: Expressions.comprehension,
    ir.Lambda: Expressions.lambda_,
    ir.Conditional: Expressions.conditional,
    ir.BoolOp: Expressions.bool_op,
    ir.Not: Expressions.not_,
    ir.Compare: Expressions.compare,
    ir.Matches: lambda machine, node, frame: machine.matches(node, frame),
    ir.BinOp: Expressions.bin_op,
    ir.NamedExpr: Expressions.named,
    ir.FormattedString: Expressions.formatted,
    ir.Yield: Expressions.yield_,
    ir.Opaque: Expressions.opaque,
}
