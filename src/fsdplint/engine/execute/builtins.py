"""Builtins, the standard library and the methods of containers, on abstract values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard, Store
from fsdplint.engine.execute.calls import is_module, is_unit, keyword_mapping
from fsdplint.engine.execute.elements import (
    COUNTED,
    element_of,
    hashable,
    kinds,
    materialized,
    merge,
    store_key,
)
from fsdplint.engine.execute.expressions import MAX_TEXT
from fsdplint.engine.execute.instances import is_instance
from fsdplint.engine.execute.state import Frame, State
from fsdplint.engine.execute.statements import EXIT, Statements
from fsdplint.engine.execute.tensors import tensor_of
from fsdplint.engine.values import (
    NONE,
    Arguments,
    ClassValue,
    Condition,
    Const,
    FunctionValue,
    Mapping,
    Method,
    Object,
    Origin,
    Parameters,
    Partial,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Value,
    choice,
    class_names,
    key_of,
    resolved,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.data import DATA_LOADERS
from fsdplint.knowledge.names import (
    DTENSOR,
    FSDP1,
)


class Builtins(Statements):
    # Containers and state dicts

    def container_method(
        self, receiver: Sequence | Mapping, name: str, arguments: Arguments, frame: Frame
    ) -> Value:
        if isinstance(receiver, Sequence):
            return self.sequence_method(receiver, name, arguments, frame)
        return self.mapping_method(receiver, name, arguments)

    def sequence_method(
        self, receiver: Sequence, name: str, arguments: Arguments, frame: Frame
    ) -> Value:
        values = arguments.args
        if name in ("append", "add", "insert", "appendleft"):
            receiver.rest.extend(materialized(self, value) for value in values[-1:])
            receiver.repeated |= frame.loops > 0
        elif name in ("extend", "update") and values:
            inner = resolved(values[0])
            receiver.rest.append(element_of(self, inner))
        elif name in ("pop", "popleft"):
            return element_of(self, receiver)
        elif name == "copy":
            return self.copied(receiver)
        elif name == "enter_context" and values:
            return values[0]
        return NONE

    def mapping_method(self, receiver: Mapping, name: str, arguments: Arguments) -> Value:
        values = arguments.args
        if name == "setdefault" and len(values) > 1 and isinstance(values[0], Const):
            return receiver.items.setdefault(hashable(values[0].value), values[1])
        if name in ("get", "pop") and values:
            return self.mapping_get(receiver, values)
        if name == "update":
            for value in values:
                merge(receiver, resolved(value))
            for key, value in arguments.keywords.items():
                store_key(receiver, Const(key), value)
        if name == "copy":
            return self.copied(receiver)
        held = [*receiver.items.values(), *receiver.rest]
        if name == "values":
            return Sequence(list(receiver.items.values()), list(receiver.rest))
        if name == "keys":
            return Sequence(
                [Const(key) for key in receiver.items], [self.unknown()] if receiver.rest else []
            )
        if name == "items":
            known_pairs: list[Value] = [
                Sequence([Const(k), v], kind="tuple") for k, v in receiver.items.items()
            ]
            pairs: list[Value] = [
                Sequence([self.unknown(Taint.ELEMENT), v], kind="tuple") for v in receiver.rest
            ]
            return Sequence(known_pairs, pairs)
        return choice(held) if name == "popitem" and held else NONE

    def mapping_get(self, receiver: Mapping, values: list[Value]) -> Value:
        """``mapping.get(key, default)``."""
        absent = isinstance(values[0], Const) and hashable(values[0].value) not in receiver.items
        if absent and not receiver.rest:
            return values[1] if len(values) > 1 else NONE
        return self.mapping_item(receiver, values[0])

    def state_method(self, receiver: StateDict, name: str, arguments: Arguments) -> Value:
        element = replace(receiver, element=True)
        if receiver.element:
            return receiver if name in known.KEEPS_SHARDED else self.unknown()
        if name == "items":
            return Sequence([], [Sequence([self.unknown(Taint.ELEMENT), element], kind="tuple")])
        if name == "values":
            return Sequence([], [element])
        if name in ("get", "pop") and arguments.args:
            entry = self.entry(receiver, arguments.args[0])
            return element if isinstance(entry, StateDict) else entry
        if name == "copy":
            return receiver
        if name == "update":
            receiver.escaped = True
        return self.unknown(Taint.ELEMENT)

    def copied(self, value: Value) -> Value:
        value = resolved(value)
        if isinstance(value, Sequence):
            return Sequence(
                list(value.items), list(value.rest), value.kind, value.taint, value.repeated
            )
        if isinstance(value, Mapping):
            return Mapping(dict(value.items), list(value.rest), value.taint)
        return value

    def text_method(self, text: str, name: str, arguments: Arguments) -> Const | None:
        """``"FSDP".lower()``: what a method makes of a known text; None where it is not known."""
        given = [value.value for value in arguments.args if isinstance(value, Const)]
        known_all = len(given) == len(arguments.args) and not arguments.keywords
        if name not in _TEXT_METHODS or arguments.open or not known_all:
            return None
        if name == "format" and _FORMATS.search(text):
            return None
        if (
            name == "replace"
            and len(text) * max(len(str(each)) for each in (*given, "")) > MAX_TEXT
        ):
            return None
        try:
            made = getattr(text, name)(*given)
        except (TypeError, IndexError, KeyError, ValueError):
            return None
        return Const(made) if len(str(made)) <= MAX_TEXT else None

    # Builtins

    def deepcopy(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        value = resolved(arguments.args[0]) if arguments.args else NONE
        if not isinstance(value, Object):
            return self.copied(value)
        made = self.new(Origin.ALLOCATED, value.cls, self.site(node, frame))
        made.args, made.keywords = value.args, dict(value.keywords)
        return made

    def is_instance(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) != 2:
            return self.unknown()
        value, classes = resolved(arguments.args[0]), resolved(arguments.args[1])
        if key_of(classes) == ("symbol", DTENSOR) and self.is_sharded_tensor(value):
            return Const(True)
        options = classes.items if isinstance(classes, Sequence) else [classes]
        if all(map(_is_fsdp1, options)) and isinstance(value, Object) and is_in_unit(value, self):
            return Const(False)
        test = is_instance(value, options)
        denied = isinstance(test, Const) and not test.value
        if denied and isinstance(value, Object) and is_unit(value) and _names_fsdp1(*options):
            site, name = self.site(node, frame), "builtins.isinstance"
            self.emit(Call(self.tick(), site, name, None, arguments, test))
        return test

    def has_attribute(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) != 2:
            return self.unknown()
        value, name = resolved(arguments.args[0]), arguments.args[1]
        if key_of(name) in _OF_DTENSORS and self.is_sharded_tensor(value):
            return Const(True)
        if isinstance(value, Object) and isinstance(name, Const):
            if name.value in value.attrs and value.attrs[str(name.value)].__class__ is not Object:
                return Const(True)
            if is_unit(value) and name.value in known.METHODS_OF_FSDP2:
                return Const(True)
            if value.sharded and name.value in known.ABSENT_FROM_FSDP2:
                defined = isinstance(value.cls, ClassValue) and value.cls.lookup(str(name.value))
                return Const(not is_unit(value) or bool(defined))
        key = ("hasattr", key_of(value), key_of(name))
        return Condition("hasattr", tuple(arguments.args), key, value.taint)

    def is_sharded_tensor(self, value: Value) -> bool:
        tensor = tensor_of(self, value)
        return tensor is not None and holds_fsdp2(tensor.module, self)

    def is_callable(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        value = resolved(arguments.args[0]) if arguments.args else NONE
        if isinstance(value, (Method, FunctionValue, ClassValue, Partial)):
            return Const(True)
        if isinstance(value, Const):
            return Const(False)
        return self.unknown(value.taint, key=("callable", key_of(value)))

    def get_attribute(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) < 2:
            return self.unknown()
        value, name = resolved(arguments.args[0]), arguments.args[1]
        if not isinstance(name, Const):
            if isinstance(value, Symbol):
                return Symbol(f"{value.name}.?")
            if isinstance(value, Object):
                return self.part(value, ".?", taint=name.taint & Taint.RANK)
            return self.unknown(taint_of(value, name))
        if isinstance(value, Object) and is_unit(value) and name.value in known.ABSENT_FROM_FSDP2:
            return arguments.args[2] if len(arguments.args) > 2 else self.unknown()
        return self.read(value, str(name.value), node, frame)

    def number(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``float("inf")``."""
        value = resolved(arguments.args[0]) if arguments.args else NONE
        if isinstance(value, Const) and str(value.value).lstrip("+").lower() in ("inf", "infinity"):
            return Const(float("inf"))
        return self.result_of(("call", "builtins.float"), Symbol("builtins.float"), arguments)

    def set_attribute(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) == 3:
            owner, name, value = resolved(arguments.args[0]), arguments.args[1], arguments.args[2]
            if isinstance(owner, Object):
                known_name = str(name.value) if isinstance(name, Const) else "?"
                if isinstance(name, Const):
                    owner.attrs[known_name] = value
                elif not is_module(owner):
                    self.unsettle(owner)
                self.stored(owner, known_name, value, node, frame)
            elif isinstance(owner, Parameters) and isinstance(name, Const):
                site = self.site(node, frame)
                self.emit(Store(self.tick(), site, owner, str(name.value), value))
        return NONE

    def unsettle(self, owner: Object) -> None:
        """Any of the settings in an object, or of its class, may have another value now."""
        lineage = list(owner.cls.lineage()) if isinstance(owner.cls, ClassValue) else []
        classes = [each for each in reversed(lineage) if isinstance(each, ClassValue)]
        declared = {name: value for each in classes for name, value in each.attrs.items()}
        for name, value in {**declared, **owner.attrs}.items():
            if isinstance(value, Const):
                owner.attrs[name] = self.part(owner, f".{name}")

    def same_iterable(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``list``, ``reversed``, ``tqdm`` …: the same elements."""
        if not arguments.args:
            return Sequence([])
        value = resolved(arguments.args[0])
        if isinstance(value, Object) and class_names(value.cls) & DATA_LOADERS:
            return self.part(value, ".iter()")  # it has its batches, and not its attributes
        if isinstance(value, StateDict):
            return Sequence([], [self.unknown(Taint.ELEMENT)])  # its keys
        return materialized(self, self.copied(value))

    def next_of(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        return element_of(self, arguments.args[0]) if arguments.args else self.unknown()

    def filtered(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) < 2:
            return self.unknown()
        return resolved(arguments.args[1])

    def mapped(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if len(arguments.args) < 2:
            return self.unknown()
        element = element_of(self, resolved(arguments.args[1]))
        result = self.apply(arguments.args[0], Arguments([element], {}), node, frame)
        return Sequence([], [result], "generator", repeated=True)

    def chained(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        return Sequence([], [element_of(self, resolved(value)) for value in arguments.args])

    def enumerated(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if not arguments.args:
            return Sequence([])
        iterable = resolved(arguments.args[0])
        if isinstance(iterable, Sequence) and not iterable.rest:
            pairs: list[Value] = [
                Sequence([Const(i), item], kind="tuple") for i, item in enumerate(iterable.items)
            ]
            return Sequence(pairs)
        counted: list[Value] = [
            Sequence([self.unknown(Taint.ELEMENT), item], kind="tuple")
            for item in kinds(self, iterable)
        ]
        return Sequence([], counted, COUNTED)

    def zipped(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        columns = [element_of(self, resolved(value)) for value in arguments.args]
        return Sequence([], [Sequence(columns, kind="tuple")])

    def partial(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if not arguments.args:
            return self.unknown()
        function, *args = arguments.args
        return Partial(function, tuple(args), dict(arguments.keywords))

    def new_dict(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        if arguments.args and not isinstance(resolved(arguments.args[0]), Mapping):
            return materialized(self, self.copied(arguments.args[0]))
        made = keyword_mapping(arguments.keywords)
        for value in arguments.args:
            merge(made, resolved(value))
        return made

    def environment_call(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        return self.environment(arguments.args[0] if arguments.args else NONE)

    def whole(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``int`` of a rank read from the environment is the same rank."""
        value = resolved(arguments.args[0]) if len(arguments.args) == 1 else NONE
        if isinstance(value, Object) and value.role is not None:
            return value
        return self.result_of(("call", "builtins.int"), Symbol("builtins.int"), arguments)

    def length(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        value = resolved(arguments.args[0]) if arguments.args else NONE
        if isinstance(value, Const) and isinstance(value.value, (str, tuple)):
            return Const(len(value.value), value.taint)
        return self.result_of(("call", "builtins.len"), Symbol("builtins.len"), arguments)

    def any_true(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``any(isinstance(m, FSDP) for m in …)``, where that is known of each of them."""
        value = resolved(arguments.args[0]) if arguments.args else NONE
        items = [*value.items, *value.rest] if isinstance(value, Sequence) else []
        if items and all(isinstance(item, Const) and not item.value for item in items):
            return Const(False)
        return self.result_of(("call", "builtins.any"), Symbol("builtins.any"), arguments)

    def variables(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        """``vars(options)``, whose items are the attributes."""
        value = resolved(arguments.args[0]) if arguments.args else NONE
        if isinstance(value, Object) and not value.attrs:
            return self.part(value, ".__dict__")
        return self.result_of(("call", "builtins.vars"), Symbol("builtins.vars"), arguments)

    def exit(self, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
        return Const(EXIT)


def holds_fsdp2(module: Object, state: State) -> bool:
    """Whether some parameter of a module is surely a DTensor shard of FSDP2's."""
    if is_unit(module):
        return True
    if module.sharded:
        return False
    if any(is_unit(above) for above in module.ancestors()):
        return True
    events = state.trace.events
    return any(
        isinstance(event, Shard)
        and event.generation is known.Generation.FSDP2
        and module in event.module.ancestors()
        and is_module(module)
        for event in events
    )


def has_fsdp1(module: Object, state: State) -> bool:
    """Whether FSDP1 wraps a module or a part of it."""
    return any(
        isinstance(event, Shard)
        and event.generation is known.Generation.FSDP1
        and module in (event.module, *event.module.ancestors())
        for event in state.trace.events
    )


def is_in_unit(value: Object, state: State) -> bool:
    """Whether a value is a part of a unit of FSDP2 in which nothing is FSDP1's."""
    if value.sharded:
        return False
    return any(is_unit(whole) and not has_fsdp1(whole, state) for whole in value.ancestors())


def _names_fsdp1(*classes: Value) -> bool:
    return any(map(_is_fsdp1, classes))


def _is_fsdp1(cls: Value) -> bool:
    cls = resolved(cls)
    return isinstance(cls, Symbol) and cls.name == FSDP1


# A field with a format of its own, which may be wide.
_FORMATS = re.compile(r"\{[^}]*[:!.\[]")
_TEXT_METHODS = frozenset(
    {
        "casefold",
        "endswith",
        "format",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "rstrip",
        "startswith",
        "strip",
        "upper",
    }
)

_OF_DTENSORS = [key_of(Const(name)) for name in ("full_tensor", "to_local", "_local_tensor")]

_Handler = Callable[[Any, Arguments, ir.Call, Frame], Value]

_SAME_ITERABLE = (
    "builtins.list",
    "builtins.tuple",
    "builtins.set",
    "builtins.frozenset",
    "builtins.iter",
    "itertools.islice",
    "builtins.sorted",
    "builtins.reversed",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "rich.progress.track",
)

# The machine is a Builtins; a handler takes the more telling type of its own module.
BUILTINS: dict[str, _Handler] = {
    **dict.fromkeys(_SAME_ITERABLE, Builtins.same_iterable),
    "builtins.isinstance": Builtins.is_instance,
    "builtins.hasattr": Builtins.has_attribute,
    "builtins.float": Builtins.number,
    "builtins.callable": Builtins.is_callable,
    "builtins.getattr": Builtins.get_attribute,
    "builtins.setattr": Builtins.set_attribute,
    "builtins.next": Builtins.next_of,
    "builtins.filter": Builtins.filtered,
    "builtins.map": Builtins.mapped,
    "builtins.enumerate": Builtins.enumerated,
    "builtins.zip": Builtins.zipped,
    "builtins.dict": Builtins.new_dict,
    "collections.OrderedDict": Builtins.new_dict,
    "builtins.int": Builtins.whole,
    "builtins.len": Builtins.length,
    "builtins.any": Builtins.any_true,
    "builtins.vars": Builtins.variables,
    "builtins.exit": Builtins.exit,
    "builtins.quit": Builtins.exit,
    "sys.exit": Builtins.exit,
    "os._exit": Builtins.exit,
    "itertools.chain": Builtins.chained,
    "copy.deepcopy": Builtins.deepcopy,
    "functools.partial": Builtins.partial,
    "os.getenv": Builtins.environment_call,
    "os.environ.get": Builtins.environment_call,
}
