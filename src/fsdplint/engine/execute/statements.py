"""Statements: what runs in order, and the blocks of `with` and `try`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.attributes import decorators
from fsdplint.engine.execute.elements import extend
from fsdplint.engine.execute.loops import Loops
from fsdplint.engine.execute.shape import adds_to_itself, expects_failed_import, only_imports
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.values import (
    NONE,
    Choice,
    Const,
    Context,
    FunctionValue,
    Method,
    Origin,
    Sequence,
    Taint,
    Value,
    resolved,
)

# What a call that ends the program evaluates to.
EXIT = object()


class Statements(Loops):
    def run(self, body: Items[ir.Stmt], frame: Frame) -> Flow:
        for statement in body:
            self.spend()
            flow = _HANDLERS[type(statement)](self, statement, frame)
            if flow is not Flow.NEXT:
                return flow
        return Flow.NEXT

    # Simple statements

    def expression(self, node: ir.Expression, frame: Frame) -> Flow:
        value = self.evaluate(node.value, frame)
        stop = isinstance(value, Const) and value.value is EXIT
        return Flow.RAISE if stop else Flow.NEXT

    def assign(self, node: ir.Assign, frame: Frame) -> Flow:
        value = self.evaluate(node.value, frame)
        if adds_to_itself(node):
            value = self.sums.pop(node.value, value)
        for target in node.targets:
            self.bind_target(target, value, frame)
        return Flow.NEXT

    def declare(self, node: ir.Declare, frame: Frame) -> Flow:
        return Flow.NEXT

    def aug_assign(self, node: ir.AugAssign, frame: Frame) -> Flow:
        old = resolved(self.evaluate(node.target, frame))
        value = self.evaluate(node.value, frame)
        extra = resolved(value)
        if isinstance(old, Sequence) and isinstance(extra, Sequence):
            extend(self, old, extra, in_loop=frame.loops > 0)
            return Flow.NEXT
        if isinstance(node.target, ir.Subscript):
            return Flow.NEXT  # `group["lr"] *= 0.1` replaces no parameter
        kept = tensors.accumulated(self, node.op, value) if frame.loops else None
        if kept is not None:
            self.bind_target(node.target, kept, frame)
            return Flow.NEXT
        taint = old.taint | value.taint | (Taint.ELEMENT if frame.loops else Taint.NONE)
        result = self.unknown(taint)
        if node.op == "Divide":
            self.divided(old, value, result, node, frame)
        self.bind_target(node.target, result, frame)
        return Flow.NEXT

    def return_(self, node: ir.Return, frame: Frame) -> Flow:
        frame.returned.append(NONE if node.value is None else self.evaluate(node.value, frame))
        return Flow.RETURN

    def raise_(self, node: ir.Raise, frame: Frame) -> Flow:
        return Flow.RAISE

    def assert_(self, node: ir.Assert, frame: Frame) -> Flow:
        test = self.truth(node.test, frame)
        if not test.taint.divides and self.decisions.known(test) is None:
            self.decisions.decide(test, True, 0, node)
        return Flow.NEXT

    def delete(self, node: ir.Delete, frame: Frame) -> Flow:
        for target in node.targets:
            if isinstance(target, ir.Name):
                frame.scope.names.pop(target.id, None)
        return Flow.NEXT

    def scope(self, node: ir.Scope, frame: Frame) -> Flow:
        for name in node.names:
            outer = frame.scope.parent
            while outer is not None and outer.parent is not None:
                if node.kind == "nonlocal" and name in outer.names:
                    break
                outer = outer.parent
            if outer is not None:
                frame.elsewhere[name] = outer
        return Flow.NEXT

    def pass_(self, node: ir.Pass, frame: Frame) -> Flow:
        return Flow.NEXT

    def break_(self, node: ir.Break, frame: Frame) -> Flow:
        return Flow.BREAK

    def continue_(self, node: ir.Continue, frame: Frame) -> Flow:
        return Flow.CONTINUE

    # Blocks

    def with_(self, node: ir.With, frame: Frame) -> Flow:
        return self.enter(node.items, node, frame)

    def enter(self, items: Items[ir.WithItem], node: ir.With, frame: Frame) -> Flow:
        """Enters the contexts in turn; a generator function runs the rest where it yields."""
        if not items:
            return self.run(node.body, frame)
        item, *others = items
        flows: list[Flow] = []

        def go_on(value: Value) -> None:
            if item.target is not None:
                self.bind_target(item.target, value, frame)
            flows.append(self.enter(others, node, frame))

        value = self.context(item.value, go_on, frame)
        if not flows:  # any other context, or a generator function that was not followed
            outer, self.on_meta = self.on_meta, self.device_of(value)
            go_on(value)
            self.on_meta = outer
        return flows[0]

    def device_of(self, context: Value) -> bool | None:
        """Whether modules are built on meta inside of a context; None where that depends."""
        options = context.options if isinstance(context, Choice) else (context,)
        metas = [isinstance(option, Context) and option.name == "meta" for option in options]
        return True if all(metas) else None if any(metas) else self.on_meta

    def context(self, node: ir.Expr, go_on: Callable[[Value], None], frame: Frame) -> Value:
        if not isinstance(node, ir.Call):
            return self.evaluate(node, frame)
        function = resolved(self.evaluate_callee(node.func, frame))
        arguments = self.arguments(node.args, frame)
        inner = function.function if isinstance(function, Method) else function
        if isinstance(inner, FunctionValue) and "contextmanager" in decorators(inner.function):
            calls, active = list(self.calls), list(self.active)

            def in_caller(value: Value) -> None:
                inside = self.calls, self.active
                self.calls, self.active = calls, active
                try:
                    go_on(value)
                finally:
                    self.calls, self.active = inside

            self.on_yield = in_caller
        result = self.apply(function, arguments, node, frame)
        self.on_yield = None
        return result

    def try_(self, node: ir.Try, frame: Frame) -> Flow:
        handlers = [statement for handler in node.handlers for statement in handler.body]
        failed: Value = self.new(Origin.UNKNOWN, key=("raises", frame.unit.path, node.start))
        fails = False
        if self.leads_to_events(handlers, frame.unit) and not self.importing:
            fails = self.decisions.decide(failed, False, self.worth(handlers), node)
        if fails:
            guard = self.guard(failed, node.handlers[0], True, frame)
            with self.under([guard]):
                flow = self.run(handlers, frame)
        else:
            outer = self.expecting_failure
            self.expecting_failure |= expects_failed_import(node)
            flow = self.attempt(node, handlers, failed, frame)
            self.expecting_failure = outer
        final = self.run(node.final, frame)
        return final if final is not Flow.NEXT else flow

    def attempt(self, node: ir.Try, handlers: Items[ir.Stmt], failed: Value, frame: Frame) -> Flow:
        """The body of a `try` that is not known to fail."""
        if self.importing or only_imports(node.body):
            return self.both(failed, node, handlers, node.body, frame)
        flow = self.run((*node.body, *node.orelse), frame)
        return Flow.NEXT if flow is Flow.RAISE and node.handlers else flow


_HANDLERS: dict[type[ir.Node], Callable[..., Flow]] = {
    ir.Expression: Statements.expression,
    ir.Assign: Statements.assign,
    ir.Declare: Statements.declare,
    ir.AugAssign: Statements.aug_assign,
    ir.Return: Statements.return_,
    ir.Raise: Statements.raise_,
    ir.Assert: Statements.assert_,
    ir.Delete: Statements.delete,
    ir.Scope: Statements.scope,
    ir.Pass: Statements.pass_,
    ir.Break: Statements.break_,
    ir.Continue: Statements.continue_,
    ir.FunctionDef: Statements.function_def,
    ir.ClassDef: Statements.class_def,
    ir.Import: Statements.import_,
    ir.ImportFrom: Statements.import_from,
    ir.If: Statements.if_,
    ir.Match: Statements.match,
    ir.Case: Statements.if_,
    ir.For: Statements.for_,
    ir.While: Statements.while_,
    ir.With: Statements.with_,
    ir.Try: Statements.try_,
}
