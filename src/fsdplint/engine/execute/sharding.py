"""What the calls that shard and those that build optimizers do to abstract values."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.events import (
    BuildOptimizer,
    Repoint,
    Shard,
)
from fsdplint.engine.execute.builtins import Builtins
from fsdplint.engine.execute.calls import ANY_METHOD, is_module, is_unit
from fsdplint.engine.execute.state import Frame, is_const
from fsdplint.engine.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Condition,
    Const,
    Object,
    Parameters,
    Sequence,
    Sharded,
    Symbol,
    Taint,
    Value,
    contained,
    resolved,
)
from fsdplint.knowledge import calls as known


class Sharding(Builtins):
    def shard(
        self, generation: known.Generation, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        target = arguments.get(0, "module")
        self.group_up = True  # FSDP2 makes a mesh, FSDP1 asks for the group
        if target is None:
            return self.unknown()
        inner = resolved(target)
        items = [*inner.items, *inner.rest] if isinstance(inner, Sequence) else [inner]
        for item in map(resolved, items):
            if isinstance(item, Object):
                self.shard_one(generation, item, arguments, node, frame)
        return target

    def shard_one(
        self,
        generation: known.Generation,
        module: Object,
        arguments: Arguments,
        node: ir.Call,
        frame: Frame,
    ) -> None:
        time, site = self.tick(), self.site(node, frame)
        view = self.enumerating
        if view is not None and any(guard.progress for guard in self.guards):
            module = self.part(view, "[]")  # some of the submodules, it is not known which
        keeps: bool | None = False
        wraps: bool | None = False
        if generation is known.Generation.FSDP1:
            self.initialise(module, arguments, node, frame)
            keeps = self.flag(arguments, -1, "use_orig_params")
            wraps = self.wraps_children(arguments)
        elif "auto_wrap_policy" in arguments.keywords:
            wraps = None  # a call that fails, of which it is meant
        module.sharded.append(Sharded(generation, time, site))
        self.adopt(module)
        keywords, strategy = dict(arguments.keywords), arguments.get(2, "sharding_strategy")
        positional = tuple(arguments.args)
        self.emit(
            Shard(
                time, site, generation, module, keeps, wraps, node, keywords, strategy, positional
            )
        )

    def adopt(self, module: Object) -> None:
        """The modules that it was given before it was known to be one are its parts."""
        for name, value in list(module.attrs.items()):
            part = resolved(value)
            if isinstance(part, Object) and is_module(part):
                self.compose(module, part, f".{name}")

    def initialise(self, module: Object, arguments: Arguments, node: ir.Call, frame: Frame) -> None:
        """FSDP1 calls its ``param_init_fn`` on each submodule that is on meta."""
        function = arguments.get(8, "param_init_fn")
        if function is not None and not is_const(function, None):
            inside = self.part(module, ".param_init_fn()", taint=Taint.ELEMENT)
            self.apply(function, Arguments([inside], {}), node, frame)

    def flag(self, arguments: Arguments, position: int, keyword: str) -> bool | None:
        """A boolean argument that defaults to False; None where it is not known."""
        value = arguments.get(position, keyword)
        if value is None:
            return None if arguments.open else False
        return bool(value.value) if isinstance(value, Const) else None

    def wraps_children(self, arguments: Arguments) -> bool | None:
        policy = arguments.get(4, "auto_wrap_policy")
        strategy = arguments.get(2, "sharding_strategy")
        if policy is None and (arguments.open or arguments.keywords.keys() - known.FSDP1_KEYWORDS):
            return None
        if policy is not None and not is_const(policy, None):
            return True if not isinstance(policy, (Choice, Condition)) else None
        plain = strategy is None or isinstance(strategy, Symbol)
        if not plain or (isinstance(strategy, Symbol) and strategy.name.endswith("NO_SHARD")):
            return None
        return False

    def register_forward(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        module, method = arguments.get(0, "module"), arguments.get(1, "method_name")
        target = None if module is None else resolved(module)
        if isinstance(target, Object) and is_unit(target):
            names = {str(method.value)} if isinstance(method, Const) else {"forward", ANY_METHOD}
            target.hooked_methods.update(names)
        return NONE

    # Optimizers

    def built(self, optimizer: Object, arguments: Arguments, node: ir.Node, frame: Frame) -> None:
        captures = self.captured(arguments)
        optimizer.captures = list(captures)
        optimizer.args, optimizer.keywords = tuple(arguments.args), dict(arguments.keywords)
        cls = optimizer.cls
        label = cls.name.rpartition(".")[2] if isinstance(cls, Symbol) else ""
        label = (
            cls.node.name if isinstance(cls, ClassValue) else label.replace("?", "the optimizer")
        )
        self.emit(
            BuildOptimizer(self.tick(), self.site(node, frame), optimizer, tuple(captures), label)
        )
        self.track(optimizer)

    def captured(self, arguments: Arguments) -> list[Parameters]:
        """The parameters an optimizer takes: generators are consumed by its constructor."""
        now = self.tick()
        return [
            replace(item, time=now, lazy=False) if item.lazy else item
            for value in arguments.values()
            for item in contained(value)
            if isinstance(item, Parameters)
        ]

    def repoint(self, arguments: Arguments, node: ir.Node, frame: Frame) -> None:
        for value in arguments.values():
            for item in contained(value):
                if isinstance(item, Object) and item.captures:
                    self.emit(Repoint(self.tick(), self.site(node, frame), item))
