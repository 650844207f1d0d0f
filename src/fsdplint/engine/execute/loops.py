"""Loops: a short display runs element by element, any other loop once for all iterations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fsdplint.engine import ir
from fsdplint.engine.events import Call
from fsdplint.engine.execute.branches import Branches
from fsdplint.engine.execute.elements import kinds, submodules, unrolled, view_of
from fsdplint.engine.execute.shape import assigned
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.values import (
    Arguments,
    Const,
    Object,
    Taint,
    Value,
    class_names,
    contained,
    resolved,
)
from fsdplint.knowledge.data import DATA_LOADERS


class Loops(Branches):
    def guarded_partially(self) -> bool:
        """Whether only some ranks or iterations are here, so that others go on."""
        return any(guard.divergent or guard.progress for guard in self.guards)

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
        if node not in self.project.assigned:
            self.project.assigned[node] = list(assigned(node))
        for target in self.project.assigned[node]:
            if isinstance(target, ir.Name):
                old = frame.scope.names.get(target.id)
                if isinstance(old, Const):
                    frame.scope.names[target.id] = self.unknown(Taint.ELEMENT)
            elif isinstance(target, ir.Attribute) and isinstance(target.value, ir.Name):
                owner = resolved(self.lookup(target.value.id, frame.scope))
                if isinstance(owner, Object) and isinstance(owner.attrs.get(target.attr), Const):
                    owner.attrs[target.attr] = self.unknown(Taint.ELEMENT)
