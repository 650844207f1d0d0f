"""What library calls do to abstract values: `knowledge` says which, this module says how."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fsdplint.engine import ir
from fsdplint.engine.events import (
    Call,
    DirectForward,
    NoSync,
    Repoint,
)
from fsdplint.engine.execute import tensors
from fsdplint.engine.execute.builtins import BUILTINS, has_fsdp1
from fsdplint.engine.execute.calls import is_module, is_unit
from fsdplint.engine.execute.elements import element_of, named_items
from fsdplint.engine.execute.groups import after_call
from fsdplint.engine.execute.saving import Saving
from fsdplint.engine.execute.state import Frame, is_const
from fsdplint.engine.values import (
    NONE,
    Arguments,
    ClassValue,
    Const,
    Context,
    FunctionValue,
    Mapping,
    Method,
    ModuleScope,
    Object,
    Origin,
    Parameters,
    Partial,
    Scope,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    Value,
    class_names,
    contained,
    key_of,
    read_from,
    resolved,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge import ranks
from fsdplint.knowledge.data import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from fsdplint.knowledge.initialisation import META_CONTEXTS, SEEDS
from fsdplint.knowledge.launch import IS_UP
from fsdplint.knowledge.modules import HUGGING_FACE_CONSTRUCTORS, POLICY_FUNCTIONS
from fsdplint.knowledge.names import (
    FSDP1_UNITS,
    REGISTER_FORWARD,
    is_optimizer,
)
from fsdplint.knowledge.options import RUNS_FUNCTION
from fsdplint.knowledge.ranks import Role
from fsdplint.knowledge.tensors import DIVISIONS, ELEMENTWISE, NUMBERS, REDUCTIONS


class Effects(Saving):
    # Library functions and classes

    def library_call(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        time, name = self.tick(), symbol.name
        result = self.known_call(symbol, arguments, node, frame)
        self.used(time, name, arguments.values(), node, frame)
        if name in known.WATCHED_CALLS:
            names = trained_names(frame) if name in known.STATE_CALLS else {}
            self.emit(Call(time, self.site(node, frame), name, None, arguments, result, names))
        self.seeded(name, arguments)
        self.group_up = after_call(self.group_up, name, arguments)
        return result

    def seeded(self, name: str, arguments: Arguments) -> None:
        """Modules built from here on draw their weights by this seed."""
        if name in SEEDS:
            self.seed_differs = bool(taint_of(*arguments.values()) & Taint.RANK)

    def note_construction(self, made: Object) -> None:
        """Tracks modules that ranks build differently, and what feeds a training loop."""
        alone = any(guard.divergent for guard in self.guards)
        if (alone or self.seed_differs) and made.parent is None and has_weights(made):
            self.track(made)
        if class_names(made.cls) & (DATA_LOADERS | DISTRIBUTED_SAMPLERS):
            self.track(made)

    def known_call(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        name = symbol.name
        computed = tensors.function(self, name, arguments, node, frame)
        if computed is not None:
            return computed
        handler = _FUNCTIONS.get(name) or BUILTINS.get(name)
        if handler is not None:
            return handler(self, arguments, node, frame)
        if name in known.SHARDING_CALLS:
            return self.shard(known.SHARDING_CALLS[name], arguments, node, frame)
        if is_optimizer(name):
            made = self.new(Origin.ALLOCATED, symbol, self.site(node, frame))
            self.built(made, arguments, node, frame)
            return made
        if name in known.PLAIN_WRITES:
            return self.plain_write(name, arguments, node, frame)
        if name in known.PLAIN_READS:
            return self.plain_read(symbol, arguments, node, frame)
        if name in known.STATE_HELPERS:
            return self.state_helper(name, arguments, node, frame)
        if name in known.RETURNS_ARGUMENT:
            position = known.RETURNS_ARGUMENT[name]
            values = arguments.values()
            if name == "torch.compile" and values:
                self.compiled(resolved(values[0]))
            return values[position] if len(values) > position else self.unknown()
        if name in known.CALLS_FIRST_ARGUMENT:
            return self.call_argument(arguments, node, frame)
        if name in RUNS_FUNCTION:
            return self.run_with_options(symbol, arguments, node, frame)
        if name in known.COPIES_CONTAINER and arguments.args:
            return self.copied(arguments.args[0])
        if name in known.REPOINTING_CALLS:
            self.repoint(arguments, node, frame)
        result = self.other_library_call(symbol, arguments, node, frame)
        if name in ranks.MADE_UP:
            result.taint |= Taint.OWN
        return result

    def compiled(self, module: Value) -> None:
        """A compiled module's ``forward`` is its ``__call__`` (OptimizedModule, torch 2.13)."""
        if isinstance(module, Object):
            module.hooked_methods.add("forward")

    def other_library_call(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        name = symbol.name
        package, _, last = name.rpartition(".")
        if not known.is_harmless(name):
            self.escape(node, frame, *arguments.values())
        if name == IS_UP and self.group_up is False and not self.importing:
            return Const(False)
        if name in known.PRESUMED:
            return Const(known.PRESUMED[name])
        if name in known.RANK_CALLS or name in ranks.FUNCTIONS:
            return self.rank_call(name, arguments)
        if last in HUGGING_FACE_CONSTRUCTORS:
            return self.constructed(Symbol(package), arguments, node, frame)
        if last[:1].isupper():
            return self.constructed(symbol, arguments, node, frame)
        made = self.result_of(("call", name), symbol, arguments)
        if name in POLICY_FUNCTIONS and not arguments.open:
            # What an imported module does is no event.
            made.cls, made.site = symbol, self.site(node, frame)
            made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
        return made

    def rank_call(self, name: str, arguments: Arguments) -> Value:
        group = resolved(arguments.get(0, "group") or NONE)
        if name in ranks.FUNCTIONS and is_const(group, None):
            role = ranks.FUNCTIONS[name]
            taint = Taint.NONE if role is Role.SIZE else Taint.RANK
            made = self.unknown(taint, key=("call", name))
            made.role, made.told_by = role, name
            return made
        taint = Taint.RANK if name in known.RANK_CALLS else Taint.NONE
        return self.unknown(taint, key=("call", name, key_of(group)))

    def constructed(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        made = self.new(
            Origin.ALLOCATED, symbol, self.site(node, frame), taint_of(*arguments.values())
        )
        made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
        self.note_construction(made)
        if symbol.name.startswith("torch.nn."):
            made.taint = Taint.NONE
            names = {id(item): f".{name}" for name, item in named_items(made).items()}
            for item in contained(Sequence(list(arguments.args))):
                if isinstance(item, Object) and item.parent is None and item is not made:
                    self.attach(item, made, names.get(id(item), "[]"))
        return made

    def device(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if arguments.args and is_const_text(arguments.args[0], "meta"):
            return Context("meta", ())
        symbol = Symbol("torch.device")
        made = self.other_library_call(symbol, arguments, node, frame)
        if isinstance(made, Object):
            made.cls, made.args = symbol, tuple(arguments.args)
            made.keywords = dict(arguments.keywords)
        return made

    def fsdp1_units(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``FSDP.fsdp_modules(model)``: an empty list, where FSDP2 has sharded the model."""
        model = resolved(arguments.get(0, "module") or NONE)
        if isinstance(model, Object) and is_unit(model) and not has_fsdp1(model, self):
            return Const(())
        return self.other_library_call(Symbol(FSDP1_UNITS), arguments, node, frame)

    def meta_context(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        return Context("meta", ())

    # Calls of modules

    def forward(self, module: Object, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        result = self.unknown()
        self.emit(Call(self.tick(), self.site(node, frame), "forward", module, arguments, result))
        found = module.cls.lookup("forward") if isinstance(module.cls, ClassValue) else None
        again = module in self.entered_forwards or self.importing
        if not again and isinstance(found, FunctionValue) and found.scope.unit.calls_forward:
            self.entered_forwards.add(module)
            self.in_forward.append(module)
            self.invoke(found, [module, *arguments.args], arguments.keywords, frame, node)
            self.in_forward.pop()
        return result

    def direct_forward(
        self, method: Method, node: ir.Node, frame: Frame, *, replaced: bool = False
    ) -> None:
        """``module.forward`` is called; ``replaced`` when it is what was assigned to it.

        A method kept from before the assignment is called by its replacement, behind the hooks.
        """
        module = resolved(method.receiver)
        if method.source is None or not isinstance(module, Object) or not is_unit(module):
            return
        hooked = module in self.in_forward or "forward" in module.hooked_methods
        if hooked or module.unsharded or ("forward" in module.attrs and not replaced):
            return
        self.emit(DirectForward(self.tick(), self.site(node, frame), method.source, module))

    def call_argument(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``checkpoint(function, *args)``."""
        if not arguments.args:
            return self.unknown()
        function, *rest = arguments.args
        inner = resolved(function)
        if isinstance(inner, (Method, FunctionValue, Partial)):
            return self.apply(inner, Arguments(rest, {}), node, frame)
        return self.unknown()

    def run_with_options(
        self, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        """``fire.Fire(main)`` calls ``main`` with what the command line says."""
        function = resolved(arguments.get(0, RUNS_FUNCTION[symbol.name]) or NONE)
        if isinstance(function, FunctionValue):
            given = self.open_parameters(function, None)
            return self.invoke(function, given, {}, frame, node, more=True)
        return self.other_library_call(symbol, arguments, node, frame)

    # Methods

    def library_method(
        self, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        time = self.tick()
        result = self.known_method(receiver, name, arguments, node, frame)
        self.used(time, name, [receiver, *arguments.values()], node, frame)
        self.note_weights(receiver, name, arguments)
        if name in DIVISIONS and arguments.args:
            quotient = receiver if name.endswith("_") else result
            self.divided(receiver, arguments.args[0], quotient, node, frame)
        cast = name in known.CASTS and isinstance(receiver, Object) and is_module(receiver)
        if name in known.WATCHED_METHODS or cast:
            names = trained_names(frame) if name in known.STATE_CALLS else {}
            self.emit(Call(time, self.site(node, frame), name, receiver, arguments, result, names))
        return result

    def note_weights(self, receiver: Value, name: str, arguments: Arguments) -> None:
        """Tracks a module whose weights a method leaves undefined, or sets on some ranks only."""
        if not isinstance(receiver, Object):
            return
        alone = any(guard.divergent for guard in self.guards)
        if name == "to_empty" or (name == "load_state_dict" and alone):
            self.track(receiver)
        if name == "to" and any(is_const_text(value, "meta") for value in arguments.values()):
            receiver.on_meta = True

    def known_method(
        self, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        if name in _OF_TENSORS or isinstance(receiver, Tensor):
            tensor = tensors.tensor_of(self, receiver)
            if tensor is not None:
                made = tensors.method(self, tensor, name, arguments, node, frame)
                return made or self.unknown(tensor.taint)
        if isinstance(receiver, Object):
            return self.object_method(receiver, name, arguments, node, frame)
        if isinstance(receiver, (Sequence, Mapping)):
            return self.container_method(receiver, name, arguments, frame)
        if isinstance(receiver, StateDict):
            return self.state_method(receiver, name, arguments)
        if isinstance(receiver, Parameters):
            return receiver if name not in NUMBERS else self.unknown(receiver.taint)
        if isinstance(receiver, Const) and isinstance(receiver.value, str):
            text = self.text_method(receiver.value, name, arguments)
            if text is not None:
                return text
        self.escape(node, frame, *arguments.values())
        return self.result_of(("method", key_of(receiver), name), receiver, arguments)

    def object_method(
        self, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        if name in known.PARAMETER_VIEWS:
            site = self.site(node, frame)
            return Parameters(
                receiver, self.tick(), site, named=name == "named_parameters", lazy=True
            )
        if name in known.SUBMODULE_VIEWS or name in ("items", "values", "keys", "get_submodule"):
            return self.view(receiver, name, arguments)
        if name in ("get", "pop") and arguments.args and read_from(receiver) is not None:
            return self.item(receiver, arguments.args[0])
        if name == "state_dict":
            return self.state_of(receiver, node, frame)
        if name in known.RETURNS_SELF and (
            is_module(receiver) or receiver.origin is not Origin.ALLOCATED or name in ("to", "cuda")
        ):
            return receiver
        if name == "no_sync":
            return self.no_sync(receiver, arguments, node, frame)
        if name in ("unshard", "reshard"):
            receiver.unsharded = name == "unshard"
            return self.unknown()
        if name in ("append", "extend", "insert", "add_module", "register_module"):
            return self.appended(receiver, arguments, frame)
        if name in known.REPOINTING_METHODS:
            self.repoint(arguments, node, frame)
            return self.prepared(arguments)
        if name == "add_param_group" and receiver.captures:
            receiver.captures.extend(self.captured(arguments))
            return NONE
        if name in ("clear", "__init__") and self.repoint_self(receiver, node, frame):
            return NONE
        if name == "apply" and arguments.args and is_module(receiver):
            inside = self.part(receiver, ".apply()", taint=Taint.ELEMENT)
            self.apply(arguments.args[0], Arguments([inside], {}), node, frame)
            return receiver
        return self.other_method(receiver, name, arguments, node, frame)

    def other_method(
        self, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
    ) -> Value:
        inert = name in known.INERT_METHODS or receiver.captures
        cls = next(iter(class_names(receiver.cls)), "")
        if not inert and not (cls and known.is_harmless(cls)):
            self.escape(node, frame, *arguments.values())
        unread = not isinstance(receiver.cls, (ClassValue, Symbol))
        if unread and not inert and receiver.escaped is None:
            receiver.escaped = self.tick()  # its own method may shard it
        taint = Taint.RANK if name in known.RANK_ATTRIBUTES else Taint.NONE
        result = self.result_of(("method", key_of(receiver), name), receiver, arguments)
        result.taint |= taint
        return result

    def view(self, receiver: Object, name: str, arguments: Arguments) -> Value:
        if name == "get_submodule":
            return self.part(receiver, ".get_submodule()")
        if name == "values":
            return receiver
        step = f".{name}()"
        made = receiver.attrs.get(step)
        if made is None:
            made = receiver.attrs[step] = self.part(receiver, step)
            if isinstance(made, Object) and name == "items":
                inner = element_of(self, receiver)
                made.elements["*"] = Sequence([self.unknown(Taint.ELEMENT), inner], kind="tuple")
        return made

    def no_sync(self, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        result = self.unknown()
        if is_unit(receiver) and not (
            isinstance(receiver.cls, ClassValue) and receiver.cls.opaque()
        ):
            self.emit(NoSync(self.tick(), self.site(node, frame), receiver))
        else:
            site = self.site(node, frame)
            self.emit(Call(self.tick(), site, "no_sync", receiver, arguments, result))
        return result

    def appended(self, receiver: Object, arguments: Arguments, frame: Frame) -> Value:
        held = receiver.attrs.get("*appended*")
        filled = held if isinstance(held, Sequence) else Sequence([])
        receiver.attrs["*appended*"] = filled
        filled.items.extend(arguments.args)
        receiver.repeated |= frame.loops > 0 or len(filled.items) > 2
        for value in arguments.args:
            item = resolved(value)
            if isinstance(item, Object) and item.parent is None and item is not receiver:
                self.attach(item, receiver, "[]")
        receiver.elements.pop("*", None)
        return NONE

    def prepared(self, arguments: Arguments) -> Value:
        """``accelerator.prepare(a, b)`` gives its arguments back, in order."""
        values = arguments.args
        return values[0] if len(values) == 1 else Sequence(list(values), kind="tuple")

    def repoint_self(self, receiver: Object, node: ir.Call, frame: Frame) -> bool:
        for whole in (receiver, *receiver.ancestors()):
            if whole.captures:
                self.emit(Repoint(self.tick(), self.site(node, frame), whole))
                return True
        return False

    def spawn(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``mp.spawn(fn, args=(…))`` calls ``fn(rank, *args)`` in every process."""
        function = arguments.get(0, "fn")
        args = resolved(arguments.get(1, "args") or Sequence([]))
        given = list(args.items) if isinstance(args, Sequence) else []
        if function is not None:
            rank = self.unknown(Taint.RANK)
            rank.role = Role.NUMBER
            outer, self.group_up = self.group_up, False
            self.apply(function, Arguments([rank, *given], {}), node, frame)
            self.group_up = outer
        return NONE


# A module has methods of other names in common with its parameters, such as `to` and `float`.
_OF_TENSORS = (REDUCTIONS.keys() | ELEMENTWISE) - known.KEEPS_SHARDED


def trained_names(frame: Frame) -> dict[str, Object]:
    """The modules and optimizers a function can name, nearest and shortest first.

    Attributes of its variables are named as well.
    """
    found: dict[str, Object] = {}
    scope: Scope | None = frame.scope
    while scope is not None:
        late = scope.late if isinstance(scope, ModuleScope) else {}
        named = [pair for item in (scope.names | late).items() for pair in _with_attributes(*item)]
        for path, item in sorted(named, key=lambda pair: pair[0].count(".")):
            if item.captures or is_module(item):
                found.setdefault(path, item)
        scope = scope.parent
    return found


def _with_attributes(name: str, value: Value) -> Iterator[tuple[str, Object]]:
    value = resolved(value)
    if not isinstance(value, Object):
        return
    yield name, value
    for attribute, held in () if is_module(value) else list(value.attrs.items()):
        inner = resolved(held)
        if attribute.isidentifier() and isinstance(inner, Object):
            yield f"{name}.{attribute}", inner


_Handler = Callable[[Effects, Arguments, ir.Call, Frame], Value]


def has_weights(made: Object) -> bool:
    """Whether an object is a module, Hugging Face's models included."""
    names = class_names(made.cls)
    return is_module(made) or any(name.startswith("transformers.") for name in names)


def is_const_text(value: Value, text: str) -> bool:
    return isinstance(value, Const) and value.value == text


_FUNCTIONS: dict[str, _Handler] = {
    "torch.device": Effects.device,
    FSDP1_UNITS: Effects.fsdp1_units,
    **dict.fromkeys(META_CONTEXTS, Effects.meta_context),
    "torch.multiprocessing.spawn": Effects.spawn,
    "torch.multiprocessing.spawn.spawn": Effects.spawn,
    REGISTER_FORWARD: Effects.register_forward,
}
