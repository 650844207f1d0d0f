"""Statements: control flow over abstract values.

A branch whose condition is not known is decided once per path where it matters (one of its arms can
reach an event), and otherwise both arms run and what they assign differently becomes a choice. Both
arms also run where the condition depends on the rank or on a loop's element: there the path stands
for all ranks and all iterations, and the guards of an event tell which of them reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Repoint, Store
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.calls import is_module, is_unit
from fsdplint.engine.execute.comparison import compare
from fsdplint.engine.execute.definitions import Definitions
from fsdplint.engine.execute.elements import (
    container_items,
    kinds,
    store_key,
    submodules,
    unrolled,
    view_of,
)
from fsdplint.engine.execute.expressions import decorators
from fsdplint.engine.execute.groups import joined
from fsdplint.engine.execute.ranks import ranks_of, tellers, telling_parts
from fsdplint.engine.execute.shape import (
    adds_to_itself,
    assigned,
    exits_cleanly,
    leaves,
    only_imports,
    returns_value,
)
from fsdplint.engine.execute.state import SHARDS, Flow, Frame
from fsdplint.engine.site import EVERY_RANK, Guard
from fsdplint.engine.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Const,
    Context,
    FunctionValue,
    Mapping,
    Method,
    Object,
    Origin,
    Parameters,
    Sequence,
    Taint,
    Tensor,
    UnitValue,
    Value,
    choice,
    class_names,
    contained,
    key_of,
    read_from,
    resolved,
    same,
    taint_of,
)
from fsdplint.knowledge.data import DATA_LOADERS

# What a call that ends the program evaluates to.
EXIT = object()


class Statements(Definitions):
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

    def guarded_partially(self) -> bool:
        """Whether only some ranks or iterations are here, so that others go on."""
        return any(guard.divergent or guard.progress for guard in self.guards)

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
            (old.rest if frame.loops else old.items).extend(extra.items)
            old.rest.extend(extra.rest)
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
        if not test.taint and self.decisions.known(test) is None:
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

    # Stores

    def store_attribute(
        self, owner: Value, target: ir.Attribute, value: Value, frame: Frame
    ) -> None:
        if isinstance(owner, Object):
            self.overwritten(owner, value, target, frame)
            if isinstance(value, Const) and target.attr in frame.unit.counters:
                value = self.unknown(Taint.ELEMENT)  # a step count is no constant
            elif isinstance(value, Const) and self.undecided:
                value = self.or_as_before(owner, value, target, frame)
            owner.attrs[target.attr] = value
            self.stored(owner, target.attr, value, target, frame)
            if target.attr == "param_groups":
                self.emit(Repoint(self.tick(), self.site(target, frame), owner))
        elif isinstance(owner, Parameters):
            self.emit(Store(self.tick(), self.site(target, frame), owner, target.attr, value))
            if target.attr not in ("grad", "requires_grad"):
                self.used(self.tick(), "=", [owner], target, frame)
        elif isinstance(owner, ClassValue):
            owner.attrs[target.attr] = value
        elif isinstance(owner, UnitValue):
            self.imported_scope(owner.unit).names[target.attr] = value

    def or_as_before(
        self, owner: Object, value: Const, target: ir.Attribute, frame: Frame
    ) -> Value:
        """A constant stored in one of two arms that both run: the attribute may keep its value."""
        declared = isinstance(owner.cls, ClassValue) and owner.cls.lookup(target.attr) is not None
        if target.attr not in owner.attrs and owner.origin is Origin.ALLOCATED and not declared:
            return value
        before = self.read(owner, target.attr, target, frame)
        return choice([before, value], taint_of(before, value))

    def stored(self, owner: Object, name: str, value: Value, node: ir.Node, frame: Frame) -> None:
        """An attribute was assigned; a module in it is a part of the owner now."""
        self.compose(owner, value, f".{name}")
        self.note_tie(owner, name)
        if is_module(owner) or name == "requires_grad":
            self.emit(Store(self.tick(), self.site(node, frame), owner, name, value))

    def note_tie(self, owner: Object, name: str) -> None:
        """Tracks a model that gets another weight once it is sharded."""
        whole = [owner, *owner.ancestors()]
        if name == "weight" and any(is_unit(each) for each in whole):
            self.track(whole[-1])

    def overwritten(self, owner: Object, value: Value, target: ir.Node, frame: Frame) -> None:
        """A store of something new into a tracked object, such as a tensor for a parameter."""
        inner = resolved(value)
        own = isinstance(inner, Object) and owner in inner.ancestors()
        if self.tracked and not own and not isinstance(value, Const):
            self.changed(self.tick(), "=", {owner}, target, frame)

    def compose(self, owner: Object, value: Value, step: str) -> None:
        """A module stored in another is a part of it."""
        value = resolved(value)
        if not isinstance(value, Object) or value.parent is not None or value is owner:
            return
        if is_module(owner) and value not in owner.ancestors():
            self.attach(value, owner, step)
            for index, item in enumerate(container_items(value)):
                if item.parent is None:
                    self.attach(item, value, f"[{index}]")

    def store_item(self, target: ir.Subscript, value: Value, frame: Frame) -> None:
        owner = resolved(self.evaluate(target.value, frame))
        index = self.evaluate(target.index, frame)
        if isinstance(owner, Mapping):
            store_key(owner, index, value)
        elif isinstance(owner, Sequence):
            owner.rest.append(value)
        elif isinstance(owner, (Parameters, Tensor)):
            self.used(self.tick(), "=", [owner], target, frame)
        elif isinstance(owner, Object):
            self.overwritten(owner, value, target, frame)
            if isinstance(index, Const) and isinstance(index.value, (int, str)):
                owner.elements[index.value] = value
            if read_from(owner) is not None and read_from(resolved(value)) is None:
                owner.escaped = self.tick()  # it is no longer what the file holds
            self.compose(owner, value, "[]")
            self.note_repointing(owner, index, target, frame)

    def note_repointing(self, owner: Object, index: Value, target: ir.Node, frame: Frame) -> None:
        """``optimizer.param_groups[0]["params"] = …`` gives the optimizer other parameters."""
        if isinstance(index, Const) and index.value != "params":
            return
        for whole in (owner, *owner.ancestors()):
            if whole.step == ".param_groups" and whole.parent is not None:
                self.emit(Repoint(self.tick(), self.site(target, frame), whole.parent))

    # Branches

    def guard(self, test: Value, node: ir.Node, taken: bool, frame: Frame) -> Guard:
        if isinstance(node, ir.Not):
            node, taken = node.operand, not taken
            test = test.operands[0] if getattr(test, "op", "") == "not" else test  # type: ignore[union-attr]  # a Condition
        divergent = bool(test.taint & Taint.RANK)
        open_element = self.enumerating is not None and not isinstance(test, Const)
        progress = bool(test.taint & Taint.ELEMENT) or open_element
        ranks = ranks_of(test, taken)
        telling = telling_parts(test, node) if ranks != EVERY_RANK else ()
        told_by = frozenset(tellers(test)) if telling else frozenset()
        return Guard(
            key_of(test),
            frame.unit.path,
            node,
            taken,
            divergent,
            progress,
            ranks=ranks,
            telling=telling,
            told_by=told_by,
        )

    def if_(self, node: ir.If, frame: Frame) -> Flow:
        test = self.truth(node.test, frame)
        return self.branch(test, node.test, node.body, node.orelse, frame)

    def branch(
        self,
        test: Value,
        place: ir.Node,
        body: Items[ir.Stmt],
        orelse: Items[ir.Stmt],
        frame: Frame,
    ) -> Flow:
        outcome = self.decisions.known(test)
        if outcome is None and not (test.taint or self.importing or self.enumerating):
            outcome = self.decide_branch(test, place, body, orelse, frame)
        if outcome is None:
            return self.both(test, place, body, orelse, frame)
        taken, other = (body, orelse) if outcome else (orelse, body)
        if self.worth(other) == SHARDS and self.worth(taken) < SHARDS:
            self.decisions.regret(test, SHARDS)
        guard = self.guard(test, place, outcome, frame)
        with self.under([guard] if not isinstance(test, Const) else []):
            mark = len(self.guards)
            flow = self.run(taken, frame)
            left = [each for each in self.guards[mark:] if each.ranks != EVERY_RANK]
        self.guards.extend(left)  # ranks that are gone stay so
        if flow is Flow.NEXT and not isinstance(test, Const) and leaves(other):
            self.guards.append(replace(guard, early=True))  # only this gets past the branch
        return flow

    def decide_branch(
        self,
        test: Value,
        place: ir.Node,
        body: Items[ir.Stmt],
        orelse: Items[ir.Stmt],
        frame: Frame,
    ) -> bool | None:
        """The outcome to follow, or None where following both at once loses nothing."""
        hot_body, hot_orelse = self.is_hot(body), self.is_hot(orelse)
        leaves_body, leaves_orelse = leaves(body), leaves(orelse)
        if not (hot_body or hot_orelse or leaves_body or leaves_orelse):
            return None
        if hot_body != hot_orelse and not (leaves_body or leaves_orelse):
            prefer = hot_body
        else:
            prefer = not leaves_body or leaves_orelse
        other_is_hot = hot_orelse if prefer else hot_body
        other_leaves = leaves_orelse if prefer else leaves_body
        other = orelse if prefer else body
        worth = 0 if other_leaves and not returns_value(other) else 1
        if other_is_hot:
            worth = self.worth(other)
        return self.decisions.decide(test, prefer, worth, place)

    def both(
        self,
        test: Value,
        place: ir.Node,
        body: Items[ir.Stmt],
        orelse: Items[ir.Stmt],
        frame: Frame,
    ) -> Flow:
        before, up = dict(frame.scope.names), self.group_up
        flows = []
        results = []
        states = []
        arms = [(True, body), (False, orelse)]
        if test.taint & Taint.RANK and getattr(test, "op", "") == "not":
            arms.reverse()  # `rank != 0` is told as `rank == 0` is
        for taken, arm in arms:
            frame.scope.names.clear()
            frame.scope.names.update(before)
            self.group_up = up
            self.undecided += 1
            with self.under([self.guard(test, place, taken, frame)]):
                flows.append(self.run(arm, frame))
            self.undecided -= 1
            results.append(dict(frame.scope.names))
            states.append(self.group_up)
        self.join(frame, flows, results)
        self.group_up = joined(flows, states)
        if Flow.NEXT in flows and flows[0] is not flows[1]:
            on = flows.index(Flow.NEXT)
            passed = self.guard(test, place, arms[on][0], frame)
            aborted = flows[1 - on] is Flow.RAISE and not exits_cleanly(arms[1 - on][1])
            # A rank that fails takes the others with it: none is left waiting.
            ranks = EVERY_RANK if aborted else passed.ranks
            self.guards.append(replace(passed, early=True, ranks=ranks))
            return Flow.NEXT
        return flows[0] if flows[0] is flows[1] else Flow.NEXT

    def join(self, frame: Frame, flows: list[Flow], results: list[dict[str, Value]]) -> None:
        """Variables after both arms: those of the arm that goes on, or a choice of the two."""
        names = frame.scope.names
        names.clear()
        if flows[0] is not flows[1] and Flow.NEXT in flows:
            names.update(results[flows.index(Flow.NEXT)])
            return
        for name in {**results[0], **results[1]}:
            options = [result[name] for result in results if name in result]
            one = len(options) == 1 or same(options[0], options[1])
            names[name] = options[0] if one else choice(options)

    def match(self, node: ir.Match, frame: Frame) -> Flow:
        subject = self.evaluate(node.subject, frame)
        return self.cases(subject, node.cases, frame)

    def cases(self, subject: Value, cases: Items[ir.Case], frame: Frame) -> Flow:
        if not cases:
            return Flow.NEXT
        case, *others = cases
        for name in case.names:
            frame.scope.names[name] = subject if case.irrefutable else self.unknown()
        if case.irrefutable and case.guard is None:
            return self.run(case.body, frame)
        test: Value = self.unknown(key=("case", id(case)))
        if case.pattern is not None:
            test = compare("Equal", subject, self.evaluate(case.pattern, frame))
        return self.branch_cases(test, case, others, subject, frame)

    def branch_cases(
        self, test: Value, case: ir.Case, others: list[ir.Case], subject: Value, frame: Frame
    ) -> Flow:
        outcome = self.decisions.known(test)
        if outcome is None and test.taint & Taint.RANK and not self.importing:
            return self.both_cases(test, case, others, subject, frame)
        if outcome is None:
            prefer = self.is_hot(case.body) or not self.is_hot(others)
            outcome = self.decisions.decide(test, prefer, 0 if self.importing else 2, case)
        with self.under([self.guard(test, case.pattern or case, outcome, frame)]):
            return self.run(case.body, frame) if outcome else self.cases(subject, others, frame)

    def both_cases(
        self, test: Value, case: ir.Case, others: list[ir.Case], subject: Value, frame: Frame
    ) -> Flow:
        """One rank takes this case, another one of the others."""
        place, up = case.pattern or case, self.group_up
        with self.under([self.guard(test, place, True, frame)]):
            flow = self.run(case.body, frame)
        state, self.group_up = self.group_up, up
        with self.under([self.guard(test, place, False, frame)]):
            other = self.cases(subject, others, frame)
        self.group_up = joined([flow, other], [state, self.group_up])
        return flow if flow is other else Flow.NEXT

    # Loops

    def for_(self, node: ir.For, frame: Frame) -> Flow:
        iterable = resolved(self.evaluate(node.iterable, frame))
        self.iterated(node, iterable, frame)
        every = submodules(self, iterable)
        view = view_of(iterable)
        if every and isinstance(view, Object):
            return self.for_submodules(node, every, view, frame)
        known = unrolled(iterable)
        with self.looping(node, frame, known is None):
            for item in kinds(self, iterable) if known is None else known:
                self.bind_target(node.target, item, frame)
                mark = len(self.guards)
                flow = self.run(node.body, frame)
                del self.guards[mark:]
                if flow in (Flow.RETURN, Flow.RAISE) and not self.guarded_partially():
                    return flow if known is not None or flow is Flow.RETURN else Flow.NEXT
                if flow is Flow.BREAK:
                    break
        return self.run(node.orelse, frame)

    def iterated(self, node: ir.For, iterable: Value, frame: Frame) -> None:
        """A loop over a loader's batches, be they counted or shown as a progress bar."""
        held = [item for item in contained(iterable) if isinstance(item, Object)]
        for source in dict.fromkeys(whole for item in held for whole in (item, *item.ancestors())):
            if class_names(source.cls) & DATA_LOADERS:
                site = self.site(node, frame)
                names: list[Value] = [Const(name) for name in self.names_of(source, frame)]
                given = Arguments(names, {})
                self.emit(Call(self.tick(), site, "iterate", source, given, iterable))

    def names_of(self, value: Object, frame: Frame) -> list[str]:
        """What the function calls an object: its variables, or attributes of ``self``."""
        owner = frame.receiver.attrs if isinstance(frame.receiver, Object) else {}
        own = [name for name, held in frame.scope.names.items() if resolved(held) is value]
        return own + [f"self.{name}" for name, held in owner.items() if resolved(held) is value]

    def for_submodules(self, node: ir.For, every: list[Value], view: Object, frame: Frame) -> Flow:
        """Each submodule in turn: a test of its class is decided, any other runs both arms."""
        outer, self.enumerating = self.enumerating, view
        with self.looping(node, frame, True):
            for item in every:
                self.bind_target(node.target, item, frame)
                mark = len(self.guards)
                self.run(node.body, frame)
                del self.guards[mark:]
        self.enumerating = outer
        return self.run(node.orelse, frame)

    def while_(self, node: ir.While, frame: Frame) -> Flow:
        with self.looping(node, frame, True):
            test = self.truth(node.test, frame)
            if self.decisions.known(test) is False:
                return self.run(node.orelse, frame)
            by_rank = [self.guard(test, node.test, True, frame)] if test.taint & Taint.RANK else []
            with self.under(by_rank):
                flow = self.run(node.body, frame)
        return flow if flow is Flow.RETURN else self.run(node.orelse, frame)

    @contextmanager
    def looping(self, node: ir.For | ir.While, frame: Frame, generic: bool) -> Iterator[None]:
        """Constants that the body changes are unknown in it: one run stands for all iterations."""
        if generic:
            self.forget_constants(node, frame)
            frame.loops += 1
        yield
        if generic:
            frame.loops -= 1

    def forget_constants(self, node: ir.For | ir.While, frame: Frame) -> None:
        for target in assigned(node):
            if isinstance(target, ir.Name):
                old = frame.scope.names.get(target.id)
                if isinstance(old, Const):
                    frame.scope.names[target.id] = self.unknown(Taint.ELEMENT)
            elif isinstance(target, ir.Attribute) and isinstance(target.value, ir.Name):
                owner = resolved(self.lookup(target.value.id, frame.scope))
                if isinstance(owner, Object) and isinstance(owner.attrs.get(target.attr), Const):
                    owner.attrs[target.attr] = self.unknown(Taint.ELEMENT)

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
        if self.is_hot(handlers) and not self.importing:
            fails = self.decisions.decide(failed, False, self.worth(handlers), node)
        if fails:
            guard = self.guard(failed, node.handlers[0], True, frame)
            with self.under([guard]):
                flow = self.run(handlers, frame)
        elif self.importing or only_imports(node.body):
            flow = self.both(failed, node, handlers, node.body, frame)
        else:
            flow = self.run((*node.body, *node.orelse), frame)
            flow = Flow.NEXT if flow is Flow.RAISE and node.handlers else flow
        final = self.run(node.final, frame)
        return final if final is not Flow.NEXT else flow


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
    ir.For: Statements.for_,
    ir.While: Statements.while_,
    ir.With: Statements.with_,
    ir.Try: Statements.try_,
}
