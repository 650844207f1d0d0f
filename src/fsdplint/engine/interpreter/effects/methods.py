"""Methods that are not the program's own: of objects, containers, state dicts and texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from dataclasses import replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import (
    access,
    calls,
    differing,
    optimizers,
    stores,
    tensors,
    tracking,
)
from fsdplint.engine.interpreter.definitions import instantiate
from fsdplint.engine.interpreter.effects import saving
from fsdplint.engine.interpreter.effects.rows import made_of_rows
from fsdplint.engine.interpreter.elements import (
    copied,
    element_of,
    hashable,
    is_popped,
    materialized,
    merge,
    pop,
    store_key,
)
from fsdplint.engine.interpreter.events import Call, NoSync
from fsdplint.engine.interpreter.expressions import MAX_TEXT
from fsdplint.engine.interpreter.frameworks import framework_of
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.modules import is_module, is_unit
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    ClassValue,
    Const,
    FunctionValue,
    Mapping,
    Object,
    Origin,
    Parameters,
    Partial,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    Value,
    choice,
    class_names,
    followed,
    key_of,
    read_from,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.data import ROW_METHODS
from fsdplint.knowledge.dtensors import RESETS
from fsdplint.knowledge.frameworks import LAUNCHING_METHODS
from fsdplint.knowledge.launch import COMMAND, COMMAND_LINES, METHODS_RUN_FUNCTION
from fsdplint.knowledge.modules import FROM_PRETRAINED, PARAMETER_LAYERS, is_hugging_face_model
from fsdplint.knowledge.tensors import ELEMENTWISE, GIVES_VIEW, IN_PLACE, NUMBERS, REDUCTIONS


def known_method(
    state: PathState, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return the result of a method by the kind of its receiver.

    An unknown method may do anything to its arguments.
    """
    tensors.operated(state, name, [receiver, *arguments.values()], node, frame)
    if name in RESETS and isinstance(receiver, Object) and is_module(receiver):
        tensors.operated(state, name, [Tensor(receiver, state.tick())], node, frame)
    is_view = name in GIVES_VIEW and isinstance(receiver, Object)
    if name in _OF_TENSORS or (tensors.is_of_unit(receiver) and not is_view):
        tensor = tensors.tensor_of(state, receiver)
        if tensor is not None:
            made = tensors.method(state, tensor, name, arguments, node, frame)
            made = tensors.made_by(state, made, node, frame)
            return made or state.unknown(tensor.taint)
    if isinstance(receiver, Object):
        return _object_method(state, receiver, name, arguments, node, frame)
    if isinstance(receiver, ClassValue) and name == FROM_PRETRAINED and _is_hugging_face(receiver):
        return _loaded(state, receiver, arguments, node, frame)
    if isinstance(receiver, Sequence):
        return _sequence_method(state, receiver, name, arguments, frame)
    if isinstance(receiver, Mapping):
        return _mapping_method(state, receiver, name, arguments)
    if isinstance(receiver, StateDict):
        return state_method(state, receiver, name, arguments)
    if isinstance(receiver, Parameters):
        return receiver if name not in NUMBERS else state.unknown(receiver.taint)
    if isinstance(receiver, Const) and isinstance(receiver.value, str):
        text = text_method(receiver.value, name, arguments)
        if text is not None:
            return text
    state.escape(node, frame, *arguments.values())
    result = calls.result_of(state, ("method", key_of(receiver), name), receiver, arguments)
    differing.called_method(name, receiver, result, arguments)
    return result


def _is_hugging_face(cls: ClassValue) -> bool:
    """True if a class of the program derives from a model of transformers."""
    return any(map(is_hugging_face_model, class_names(cls)))


def _loaded(
    state: PathState, cls: ClassValue, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Construct a class of the program that transformers loads, and give it its weights.

    The configuration is that of the checkpoint if the program gives none. It then takes the keyword
    arguments that it has attributes for, and the constructor gets what is left.
    """
    given = arguments.keywords.get("config")
    init = cls.lookup("__init__")
    parameters = init.function.parameters if isinstance(init, FunctionValue) else ()
    keywords = {
        parameter.name: arguments.keywords[parameter.name] if given else state.unknown()
        for parameter in parameters
        if parameter.name in arguments.keywords and parameter.name != "config"
    }
    config = given or calls.result_of(state, ("config", key_of(cls)), cls, arguments)
    to_init = Arguments([config, *arguments.args[1:]], keywords, arguments.open)
    made = instantiate(state, cls, to_init, node, frame)
    if isinstance(made, Object):
        made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
        tracking.used(state, state.tick(), FROM_PRETRAINED, [made], node, frame)
    return made


def _object_method(
    state: PathState, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    effect = _METHODS.get(name)
    result = None if effect is None else effect(state, receiver, arguments, node, frame)
    if result is not None:
        return result
    return _other_method(state, receiver, name, arguments, node, frame)


def _is_weight(item: Object) -> bool:
    """True if an object is the weight or bias of a layer of PyTorch's, so no module."""
    layer = item.parent
    if layer is None or not isinstance(layer.cls, Symbol) or layer.cls.name not in PARAMETER_LAYERS:
        return False
    return item in map(layer.attrs.get, ("weight", "bias"))


def _other_method(
    state: PathState, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a method that no table lists; one of unknown code may shard its receiver."""
    inert = name in known.INERT_METHODS or name in IN_PLACE or receiver.captures
    cls = next(iter(class_names(receiver.cls)), "")
    if not inert and not (cls and known.is_harmless(cls)):
        state.escape(node, frame, *arguments.values())
    unread = not isinstance(receiver.cls, (ClassValue, Symbol)) and not _is_weight(receiver)
    if unread and not inert and receiver.escaped is None:
        receiver.escaped = state.tick()  # its own method may shard it
    result = calls.result_of(state, ("method", key_of(receiver), name), receiver, arguments)
    result.role = access.library_role(receiver, name, called=True)
    if result.role is not None or name in known.RANK_ATTRIBUTES:
        result.taint |= Taint.RANK
    differing.called_method(name, receiver, result, arguments)
    return result


# Methods of objects


def _parameters(
    name: str, state: PathState, receiver: Object, _: Arguments, node: ir.Call, frame: Frame
) -> Value:
    named = name == "named_parameters"
    return Parameters(receiver, state.tick(), state.site(node, frame), named=named, lazy=True)


def _view(name: str, state: PathState, receiver: Object, *_: object) -> Value:
    step = f".{name}()"
    made = receiver.attrs.get(step)
    if made is None:
        made = receiver.attrs[step] = state.part(receiver, step)
        if isinstance(made, Object) and name == "items":
            inner = element_of(state, receiver)
            made.elements["*"] = Sequence([state.unknown(Taint.ELEMENT), inner], kind="tuple")
    return made


def _submodule(state: PathState, receiver: Object, *_: object) -> Value:
    return state.part(receiver, ".get_submodule()")


def _itself(_: PathState, receiver: Object, *__: object) -> Value:
    return receiver


def _itself_if_module(_: PathState, receiver: Object, *__: object) -> Value | None:
    return receiver if is_module(receiver) or receiver.origin is not Origin.ALLOCATED else None


def _transposed(name: str, state: PathState, receiver: Object, *_: object) -> Value | None:
    """Return ``weight.t()`` as a view of the weight."""
    return _view(name, state, receiver) if receiver.step == ".weight" else None


def _entry_of_file(
    state: PathState, receiver: Object, arguments: Arguments, *_: object
) -> Value | None:
    if not arguments.args or read_from(receiver) is None:
        return None
    return access.item(state, receiver, arguments.args[0])


def _entry_of_object(
    state: PathState, receiver: Object, arguments: Arguments, *_: object
) -> Value | None:
    """Evaluate ``config.get(key, default)`` for a popped key or for an entry of a file."""
    if arguments.args and is_popped(receiver, arguments.args[0]):
        return arguments.get(1, "default") or NONE
    return _entry_of_file(state, receiver, arguments)


def _popped(state: PathState, receiver: Object, arguments: Arguments, *_: object) -> Value | None:
    """Pop a key from an object that may be a dict."""
    if arguments.args and receiver.cls is None and not state.undecided:
        state.note_change(receiver)
        pop(receiver, arguments.args[0])
    return _entry_of_file(state, receiver, arguments)


def _no_sync(
    state: PathState, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Note ``no_sync()``: on an FSDP2 unit it is an error, on others a watched call."""
    result = state.unknown()
    if is_unit(receiver) and not (isinstance(receiver.cls, ClassValue) and receiver.cls.opaque()):
        state.note(NoSync, node, frame, receiver)
    else:
        state.note(Call, node, frame, "no_sync", receiver, arguments, result)
    return result


def _unsharded(unsharded: bool, state: PathState, receiver: Object, *_: object) -> Value:
    receiver.unsharded = unsharded
    return state.unknown()


def _appended(
    state: PathState, receiver: Object, arguments: Arguments, _: ir.Call, frame: Frame
) -> Value:
    """Add modules, or a list of some, to a container module."""
    lists = [value for value in map(followed, arguments.args) if isinstance(value, Sequence)]
    many = frame.loops > 0 or any(each.rest or each.repeated for each in lists)
    listed = [item for each in lists for item in (*each.items, *each.rest)]
    stores.fill(state, receiver, listed or arguments.args, in_loop=many)
    return NONE


def _prepared(
    state: PathState, _: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return the arguments of ``accelerator.prepare(a, b)`` in order."""
    optimizers.repoint(state, arguments, node, frame)
    values = arguments.args
    return values[0] if len(values) == 1 else Sequence(list(values), kind="tuple")


def _group_added(
    state: PathState, receiver: Object, arguments: Arguments, *_: object
) -> Value | None:
    if not receiver.captures:
        return None
    receiver.captures.extend(optimizers.captured(state, arguments))
    return NONE


def _cleared(
    state: PathState, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    if optimizers.is_class(receiver.cls) and not receiver.captures:
        receiver.captures = optimizers.captured(state, arguments)  # by its own constructor
        return NONE
    return NONE if optimizers.repoint_self(state, receiver, node, frame) else None


def _applied(
    state: PathState, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """Execute ``module.apply(function)`` once for all submodules."""
    if not arguments.args or not is_module(receiver):
        return None
    inside = state.part(receiver, ".apply()", taint=Taint.ELEMENT)
    calls.apply(state, arguments.args[0], Arguments([inside], {}), node, frame)
    return receiver


# The effect of a method; None to treat the call like a method that no table lists.
_Method = Callable[[PathState, Object, Arguments, ir.Call, Frame], Value | None]


def _command(
    _: PathState, receiver: Object, arguments: Arguments, __: ir.Call, ___: Frame
) -> Value | None:
    """Return the decorator by which a command line registers a function."""
    if class_names(receiver.cls).isdisjoint(COMMAND_LINES):
        return None
    return Partial(Symbol(COMMAND), (receiver,), arguments.keywords)


def _run_by_method(
    cls: str,
    keyword: str,
    state: PathState,
    receiver: Object,
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> Value | None:
    """Execute ``TrainingClient().create_job(train_func=train)``, which runs ``train`` somewhere."""
    function = followed(arguments.keywords.get(keyword, NONE))
    if cls not in class_names(receiver.cls) or not isinstance(function, FunctionValue):
        return None
    invoke(state, function, open_parameters(state, function, None), {}, frame, node, more=True)
    return state.unknown()


def _launched(
    state: PathState, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """Execute ``fabric.launch(main, *args)``, which calls ``main(fabric, *args)`` on every rank."""
    framework = framework_of(receiver)
    if framework is None or not framework.launches or not arguments.args:
        return None
    state.note_unread_code()
    function, *args = arguments.args
    given = Arguments([receiver, *args], arguments.keywords, arguments.open)
    return calls.apply(state, function, given, node, frame)


def _spelled(
    _: PathState, receiver: Object, arguments: Arguments, __: ir.Call, ___: Frame
) -> Value | None:
    """Return an unknown text itself for ``text.lower()``: tests of both are about one setting."""
    return receiver if receiver.cls is None and not arguments.args else None


_METHODS: MappingType[str, _Method] = {
    **{name: partial(_parameters, name) for name in known.PARAMETER_VIEWS},
    **{name: partial(_view, name) for name in (*known.SUBMODULE_VIEWS, "items", "keys")},
    **{name: partial(_transposed, name) for name in ("t", "transpose")},
    "values": _itself,
    "get_submodule": _submodule,
    "get": _entry_of_object,
    "pop": _popped,
    "state_dict": saving.state_of,
    **dict.fromkeys(known.RETURNS_SELF, _itself_if_module),
    **dict.fromkeys(("to", "cuda"), _itself),
    "no_sync": _no_sync,
    "unshard": partial(_unsharded, True),
    "reshard": partial(_unsharded, False),
    **dict.fromkeys(("append", "extend", "insert", "add_module", "register_module"), _appended),
    **dict.fromkeys(known.REPOINTING_METHODS, _prepared),
    "add_param_group": _group_added,
    **dict.fromkeys(("clear", "__init__"), _cleared),
    "apply": _applied,
    **{name: partial(_run_by_method, *run) for name, run in METHODS_RUN_FUNCTION.items()},
    **dict.fromkeys(LAUNCHING_METHODS, _launched),
    **dict.fromkeys(("casefold", "lower", "strip", "upper"), _spelled),
    COMMAND: _command,
    **{name: partial(made_of_rows, name) for name in ROW_METHODS},
}

# Tensor methods that modules do not have; `to` and `float`, say, are methods of both.
_OF_TENSORS = (REDUCTIONS.keys() | ELEMENTWISE) - known.KEEPS_SHARDED


# Methods of containers that change nothing.
_READS_ONLY = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
_SET_TESTS = frozenset({"isdisjoint", "issubset", "issuperset"})


def _sequence_method(
    state: PathState, receiver: Sequence, name: str, arguments: Arguments, frame: Frame
) -> Value:
    """Call a method of a list, set, deque, iterator or exit stack."""
    if name in _SET_TESTS:
        return state.unknown(taint_of(*arguments.args))
    if name not in _READS_ONLY:
        state.note_change()
    values = arguments.args
    if name in ("append", "add", "insert", "appendleft"):
        receiver.rest.extend(materialized(state, value) for value in values[-1:])
        receiver.repeated |= frame.loops > 0
    elif name in ("extend", "update") and values:
        inner = followed(values[0])
        receiver.rest.append(element_of(state, inner))
    elif name in ("pop", "popleft"):
        return element_of(state, receiver)
    elif name == "copy":
        return copied(receiver)
    elif name == "enter_context" and values:
        return values[0]
    return NONE


def _mapping_method(state: PathState, receiver: Mapping, name: str, arguments: Arguments) -> Value:
    """Call a method of a dict."""
    if name not in _READS_ONLY:
        state.note_change()
    values = arguments.args
    if name == "setdefault" and len(values) > 1 and isinstance(values[0], Const):
        return receiver.items.setdefault(hashable(values[0].value), values[1])
    if name in ("get", "pop") and values:
        found = _mapping_get(state, receiver, values)
        if name == "pop" and isinstance(values[0], Const):
            receiver.items.pop(hashable(values[0].value), None)
        return found
    if name == "clear":
        receiver.items.clear()
        receiver.rest.clear()
    if name == "update":
        for value in values:
            merge(receiver, followed(value))
        for key, value in arguments.keywords.items():
            store_key(receiver, Const(key), value)
    if name == "copy":
        return copied(receiver)
    held = [*receiver.items.values(), *receiver.rest]
    if name == "values":
        return Sequence(list(receiver.items.values()), list(receiver.rest))
    if name == "keys":
        return Sequence(
            [Const(key) for key in receiver.items], [state.unknown()] if receiver.rest else []
        )
    if name == "items":
        known_pairs: list[Value] = [
            Sequence([Const(k), v], kind="tuple") for k, v in receiver.items.items()
        ]
        pairs: list[Value] = [
            Sequence([state.unknown(Taint.ELEMENT), v], kind="tuple") for v in receiver.rest
        ]
        return Sequence(known_pairs, pairs)
    return choice(held) if name == "popitem" and held else NONE


def _mapping_get(state: PathState, receiver: Mapping, values: list[Value]) -> Value:
    """Evaluate ``mapping.get(key, default)``."""
    absent = isinstance(values[0], Const) and hashable(values[0].value) not in receiver.items
    if absent and not receiver.rest:
        return values[1] if len(values) > 1 else NONE
    return access.mapping_item(state, receiver, values[0])


def state_method(state: PathState, receiver: StateDict, name: str, arguments: Arguments) -> Value:
    """Call a method of a state dict, or of one value in it."""
    element = replace(receiver, element=True)
    if receiver.element:
        if name not in known.KEEPS_SHARDED:
            return state.unknown()
        return receiver if name in known.KEEPS_MEMORY else replace(receiver, live=False)
    if name == "items":
        return Sequence([], [Sequence([state.unknown(Taint.ELEMENT), element], kind="tuple")])
    if name == "values":
        return Sequence([], [element])
    if name in ("get", "pop") and arguments.args:
        entry = access.entry(state, receiver, arguments.args[0])
        return element if isinstance(entry, StateDict) else entry
    if name == "copy":
        return receiver
    if name == "update":
        receiver.escaped = True
    return state.unknown(Taint.ELEMENT)


def text_method(text: str, name: str, arguments: Arguments) -> Const | None:
    """Return what a method makes of a known text, such as ``"FSDP".lower()``, or None."""
    given = [value.value for value in arguments.args if isinstance(value, Const)]
    known_all = len(given) == len(arguments.args) and not arguments.keywords
    if name not in _TEXT_METHODS or arguments.open or not known_all:
        return None
    if name == "format" and _FORMATS.search(text):
        return None
    if name == "replace" and len(text) * max(len(str(each)) for each in (*given, "")) > MAX_TEXT:
        return None
    try:
        made = getattr(text, name)(*given)
    except (TypeError, IndexError, KeyError, ValueError):
        return None
    return Const(made) if len(str(made)) <= MAX_TEXT else None


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
