"""Calls: project functions are entered, classes instantiated, libraries looked up in `effects`."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.events import MethodCall
from fsdplint.engine.execute.attributes import decorators
from fsdplint.engine.execute.expressions import Expressions
from fsdplint.engine.execute.state import Flow, Frame
from fsdplint.engine.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Identity,
    Inner,
    Mapping,
    Method,
    Object,
    Origin,
    Partial,
    Scope,
    Sequence,
    Super,
    Symbol,
    Taint,
    Value,
    choice,
    class_names,
    contained,
    key_of,
    resolved,
    taint_of,
)
from fsdplint.knowledge import ranks
from fsdplint.knowledge.calls import WRAPPED, Generation
from fsdplint.knowledge.names import MODULE, is_optimizer
from fsdplint.knowledge.packages import may_set_up
from fsdplint.knowledge.ranks import Role
from fsdplint.knowledge.tensors import means_combining

# Decorators that hand on what the function gives.
_HAND_ON = frozenset({"classmethod", "staticmethod"})


class Calls(Expressions):
    @abstractmethod
    def run(self, body: Items[ir.Stmt], frame: Frame) -> Flow: ...

    @abstractmethod
    def library_call(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value: ...

    @abstractmethod
    def library_method(
        self, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value: ...

    @abstractmethod
    def forward(
        self, module: Object, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value: ...

    @abstractmethod
    def direct_forward(
        self, method: Method, node: ir.Node, frame: Frame, *, replaced: bool = False
    ) -> None: ...

    @abstractmethod
    def note_construction(self, made: Object) -> None: ...

    @abstractmethod
    def built(
        self, optimizer: Object, arguments: Arguments, node: ir.Node, frame: Frame
    ) -> None: ...

    def call(self, node: ir.Call, frame: Frame) -> Value:
        if (
            isinstance(node.func, ir.Name)
            and node.func.id == "super"
            and isinstance(frame.receiver, Object)
        ):
            return self.super_of(node, frame, frame.receiver)
        function = self.evaluate_callee(node.func, frame)
        arguments = self.arguments(node.args, frame)
        self.note_combining(node, arguments)
        return self.apply(function, arguments, node, frame)

    def note_combining(self, node: ir.Call, arguments: Arguments) -> None:
        """Numbers read on each rank may be combined by a function that is called like that."""
        named = means_combining(ir.last_name(node.func))
        if named and not self.importing and is_local(*arguments.values()):
            self.trace.combined.append(self.tick())

    def evaluate_callee(self, node: ir.Expr, frame: Frame) -> Value:
        """Like `evaluate`, but an attribute that is not known stays a method to be called."""
        if not isinstance(node, ir.Attribute):
            return self.evaluate(node, frame)
        given = self.evaluate(node.value, frame)
        receiver = resolved(given)
        if isinstance(receiver, Object) and node.attr not in receiver.attrs:
            cls = receiver.cls
            wraps = node.attr in WRAPPED and receiver.sharded
            if not (wraps or (isinstance(cls, ClassValue) and cls.lookup(node.attr) is not None)):
                bound = given if isinstance(given, Inner) else receiver
                return Method(bound, node.attr, None, self.site(node, frame))
        elif isinstance(receiver, Object) and node.attr == "forward":
            replacement = Method(receiver, "forward", None, self.site(node, frame))
            self.direct_forward(replacement, node, frame, replaced=True)
        if isinstance(receiver, (Object, Symbol, Super)) or hasattr(receiver, "unit"):
            return self.read(receiver, node.attr, node, frame)
        if isinstance(receiver, ClassValue) and receiver.lookup(node.attr) is not None:
            return self.read(receiver, node.attr, node, frame)
        return Method(receiver, node.attr, None, self.site(node, frame))

    def super_of(self, node: ir.Call, frame: Frame, receiver: Object) -> Value:
        owner = None if frame.function is None else frame.function.owner
        return self.unknown() if owner is None else Super(receiver, owner)

    def arguments(self, nodes: Items[ir.Argument], frame: Frame) -> Arguments:
        made = Arguments([], {})
        for node in nodes:
            value = self.evaluate(node.value, frame)
            if node.star == "*":
                inner = resolved(value)
                known = isinstance(inner, Sequence) and not inner.rest
                made.args.extend(inner.items if known and isinstance(inner, Sequence) else [value])
                made.open |= not known
            elif node.star == "**":
                self.spread(made, resolved(value))
            elif node.keyword is not None:
                made.keywords[node.keyword] = value
            else:
                made.args.append(value)
        return made

    def spread(self, made: Arguments, value: Value) -> None:
        if isinstance(value, Mapping):
            made.keywords.update({k: v for k, v in value.items.items() if isinstance(k, str)})
            made.open |= bool(value.rest)
        else:
            made.open = True

    def apply(self, function: Value, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        called = function.receiver if isinstance(function, Method) else function
        if isinstance(called, Inner):
            self.trace.inside.add(self.site(node, frame))
        if isinstance(function, Choice):
            picked, test = self.pick(function)
            guards = [] if test is None else [self.guard(test, node.func, True, frame)]
            with self.under(guards):
                return self.apply(picked, arguments, node, frame)
        function = resolved(function)
        if isinstance(function, Symbol):
            return self.library_call(function, arguments, node, frame)
        if isinstance(function, FunctionValue):
            given, named, more = arguments.args, arguments.keywords, arguments.open
            return self.invoke(function, given, named, frame, node, more=more)
        if isinstance(function, Method):
            return self.call_method(function, arguments, node, frame)
        if isinstance(function, ClassValue):
            return self.instantiate(function, arguments, node, frame)
        if isinstance(function, Partial):
            keywords = {**function.keywords, **arguments.keywords}
            joined = Arguments([*function.args, *arguments.args], keywords, arguments.open)
            return self.apply(function.function, joined, node, frame)
        if isinstance(function, Object):
            return self.call_object(function, arguments, node, frame)
        return self.call_unknown(function, arguments, node, frame)

    def pick(self, function: Choice) -> tuple[Value, Value | None]:
        """One of several callables, with the condition under which it is that one, if known.

        An optimizer class stands for all optimizer classes.
        """
        options = [resolved(o) for o in function.options if not isinstance(o, Const)]
        symbols = [option for option in options if isinstance(option, Symbol)]
        if len(symbols) == len(options) and len(symbols) > 1:
            optimizers = all(is_optimizer(symbol.name) for symbol in symbols)
            return (symbols[0] if optimizers else self.unknown()), None
        for option, test in zip(function.options[:-1], function.tests[:-1], strict=False):
            inner = resolved(option)
            hot = isinstance(inner, FunctionValue) and self.is_hot([inner.function])
            if self.decisions.decide(test, hot, 2, (Identity(inner), hot)):
                return option, test
        if function.tests:
            return function.options[-1], function.tests[-1]
        return (options[0] if options else function.options[0]), None

    def call_unknown(
        self, function: Value, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        self.escape(node, frame, *arguments.values())
        self.used(self.tick(), "?", [function, *arguments.values()], node, frame)
        self.met_unread()
        return self.result_of(("call", key_of(function)), function, arguments)

    def result_of(self, about: object, function: Value, arguments: Arguments) -> Object:
        """An unknown result: equal calls share a key, so that conditions on them agree."""
        taint = taint_of(function, *arguments.values())
        if is_local(*arguments.values()):
            taint |= Taint.LOCAL
        keywords = sorted(arguments.keywords.items(), key=lambda item: item[0])
        named = [(name, key_of(value)) for name, value in keywords]
        return self.unknown(taint, key=(about, *map(key_of, arguments.args), *named))

    # Methods and objects

    def call_method(
        self, method: Method, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        receiver = resolved(method.receiver)
        if method.name == "forward" and method.source is not None and isinstance(receiver, Object):
            self.direct_forward(method, node, frame)
            if is_module(receiver):
                return self.forward(receiver, arguments, node, frame)
        if method.function is None:
            return self.library_method(receiver, method.name, arguments, node, frame)
        self.method_call(method, receiver, node, frame)
        with_receiver = [receiver, *arguments.args]
        hooked = isinstance(receiver, Object) and method.name in receiver.hooked_methods
        if hooked and isinstance(receiver, Object):
            self.in_forward.append(receiver)
        named, more = arguments.keywords, arguments.open
        result = self.invoke(method.function, with_receiver, named, frame, node, more=more)
        if hooked:
            self.in_forward.pop()
        return result

    def method_call(self, method: Method, receiver: Value, node: ir.Call, frame: Frame) -> None:
        """Notes a method other than forward, called on a unit outside of the unit's forward."""
        if method.source is None or not isinstance(receiver, Object) or not receiver.sharded:
            return
        if receiver in self.in_forward:
            return
        hooked = not receiver.hooked_methods.isdisjoint((method.name, ANY_METHOD))
        site = self.site(node, frame)
        self.emit(MethodCall(self.tick(), site, method.source, receiver, method.name, hooked))

    def call_object(
        self, function: Object, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        found = function.cls.lookup("__call__") if isinstance(function.cls, ClassValue) else None
        if isinstance(found, FunctionValue) and not is_module(function):
            return self.invoke(found, [function, *arguments.args], arguments.keywords, frame, node)
        if is_module(function) or function.sharded:
            return self.forward(function, arguments, node, frame)
        return self.call_unknown(function, arguments, node, frame)

    def instantiate(
        self, cls: ClassValue, arguments: Arguments, node: ir.Node, frame: Frame
    ) -> Value:
        self.reached.add(cls.node)
        made = self.new(Origin.ALLOCATED, cls, self.site(node, frame))
        made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
        if any(map(may_set_up, class_names(cls))):
            self.met_unread()
        init = cls.lookup("__init__")
        if any(is_optimizer(name) or name == "torch.optim.Optimizer" for name in class_names(cls)):
            self.built(made, arguments, node, frame)
        elif isinstance(init, FunctionValue):
            given, named, more = [made, *arguments.args], arguments.keywords, arguments.open
            self.invoke(init, given, named, frame, node, more=more)
        else:
            self.fill_fields(made, cls, arguments)
        self.note_construction(made)
        return made

    def fill_fields(self, made: Object, cls: ClassValue, arguments: Arguments) -> None:
        """A dataclass or named tuple: arguments become attributes in the order of declaration."""
        names = [
            name
            for base in reversed([base for base in cls.lineage() if isinstance(base, ClassValue)])
            for name in field_names(base)
        ]
        made.attrs.update(zip(names, arguments.args, strict=False))
        made.attrs.update(arguments.keywords)
        post = cls.lookup("__post_init__")
        if isinstance(post, FunctionValue):
            self.invoke(post, [made], {}, Frame(cls.scope, cls.scope.unit), cls.node)

    # Functions

    def invoke(
        self,
        function: FunctionValue,
        args: list[Value],
        keywords: dict[str, Value],
        frame: Frame,
        node: ir.Node,
        *,
        more: bool = False,
    ) -> Value:
        """Runs a project function; where that would go too deep, its result is unknown.

        Args:
            more: keywords that are not known may be given besides.
        """
        again = self.active.count(function.function) > 1
        if again or len(self.calls) >= self.project.budget.depth:
            if not again:
                self.stopped_at(function)
            self.used(self.tick(), "?", [*args, *keywords.values()], node, frame)
            self.met_unread()
            return self.unknown(taint_of(*args))
        self.reached.add(function.function)
        scope = Scope({}, function.scope, function.scope.unit)
        receiver = (
            args[0] if function.owner is not None and args else frame_receiver(function, frame)
        )
        inner = Frame(scope, function.scope.unit, function, receiver)
        inner.loops = frame.loops
        inner.on_yield, self.on_yield = self.on_yield, None
        self.bind_parameters(function, args, keywords, inner, more)
        mark = inner.mark = len(self.guards)
        self.calls.append((frame.unit.path, node))
        self.begin(function.function)
        try:
            with self.under([] if function.only is None else [function.only]):
                self.run(function.function.body, inner)
        finally:
            self.calls.pop()
            self.active.pop()
            del self.guards[mark:]
        if function.function.is_generator:
            if decorators(function.function) - _HAND_ON:
                return self.unknown()  # what a context manager yields is had by entering it
            return Sequence([], inner.yielded or [NONE], "generator")
        return choice(inner.returned) if inner.returned else NONE

    def stopped_at(self, function: FunctionValue) -> None:
        """Note a call that is too deep to be followed, if it may cause an event."""
        unit = function.scope.unit
        if not self.importing and self.leads_to_events(function.function.body, unit):
            reason = f"calls nested more than {self.project.budget.depth} deep"
            self.project.stop_early(self.trace.path, self.trace.entry, reason)

    def bind_parameters(
        self,
        function: FunctionValue,
        args: list[Value],
        keywords: dict[str, Value],
        inner: Frame,
        more: bool,
    ) -> None:
        names, left, extra = inner.scope.names, deque(args), dict(keywords)
        for parameter in function.function.parameters:
            name = parameter.name
            if parameter.kind == "*":
                names[name] = Sequence(list(left), kind="tuple")
                left.clear()
            elif parameter.kind == "**":
                others = keyword_mapping(extra)
                others.rest += [self.unknown()] if more else []
                names[name], extra = others, {}
            elif parameter.kind == "positional" and left:
                names[name] = left.popleft()
                extra.pop(name, None)
            elif name in extra:
                names[name] = extra.pop(name)
            elif parameter.default is not None:
                names[name] = self.default(parameter.default, function)
            else:
                made = self.unknown(key=("parameter", id(function.function), name))
                made.step, names[name] = name, made

    def default(self, node: ir.Expr, function: FunctionValue) -> Value:
        return self.evaluate(node, Frame(function.scope, function.scope.unit))

    def open_parameters(self, function: FunctionValue, receiver: Value | None) -> list[Value]:
        """Arguments for an entry: nothing is known of them but their names."""
        made: list[Value] = []
        names = {parameter.name for parameter in function.function.parameters}
        for parameter in function.function.parameters:
            if parameter.kind in ("*", "**"):
                break
            if receiver is not None and not made:
                made.append(receiver)
                continue
            taint = Taint.RANK if parameter.name in RANK_PARAMETERS else Taint.NONE
            value = self.new(Origin.PARAMETER, taint=taint)
            value.step = parameter.name
            value.role = role_of_parameter(parameter.name, names)
            value.taint |= Taint.RANK if value.role is Role.NUMBER else Taint.NONE
            made.append(value)
        return made


def is_local(*values: Value) -> bool:
    """Whether a number read from this rank's part of a tensor is in one of the values."""
    return any(item.taint & Taint.LOCAL for value in values for item in contained(value))


# Stands among the hooked methods for one whose name is not known.
ANY_METHOD = "*"
RANK_PARAMETERS = frozenset({"rank", "local_rank", "global_rank"})


def role_of_parameter(name: str, names: set[str]) -> Role | None:
    """What a function's parameter is where a launcher calls it, told from all their ``names``."""
    told_size = bool(names & ranks.SIZE_PARAMETERS)
    if name in ranks.PARAMETERS or (told_size and name in ranks.PARAMETERS_BESIDE_SIZE):
        return Role.NUMBER
    return Role.SIZE if name in ranks.SIZE_PARAMETERS else None


def frame_receiver(function: FunctionValue, frame: Frame) -> Value | None:
    """A nested function sees the ``self`` of the method it is defined in."""
    return frame.receiver if function.owner is None else None


def is_module(value: Object) -> bool:
    """Whether an object is known to be a module: by class, or because it was sharded."""
    if value.sharded or MODULE in class_names(value.cls):
        return True
    return any(
        isinstance(cls, str) and (cls.startswith("torch.nn.") or "PreTrainedModel" in cls)
        for cls in class_names(value.cls)
    )


def keyword_mapping(keywords: dict[str, Value]) -> Mapping:
    made = Mapping()
    made.items.update(keywords)
    return made


def is_unit(value: Object) -> bool:
    return value.generation() is Generation.FSDP2


def field_names(cls: ClassValue) -> list[str]:
    """Annotated names of a class body, in order."""
    names = []
    for node in cls.node.body:
        target = node.target if isinstance(node, ir.Declare) else None
        if isinstance(node, ir.Assign):
            target = node.targets[0]
        if isinstance(target, ir.Name):
            names.append(target.id)
    return names
