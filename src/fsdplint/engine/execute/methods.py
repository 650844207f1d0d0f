"""Methods that are not the program's own."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.events import Call, NoSync
from fsdplint.engine.execute import (
    calls,
    containers,
    optimizers,
    saving,
    subscripts,
    tensors,
    tracking,
)
from fsdplint.engine.execute.elements import element_of
from fsdplint.engine.execute.modules import is_module, is_unit
from fsdplint.engine.execute.state import Frame, PathState
from fsdplint.engine.values import (
    NONE,
    Arguments,
    ClassValue,
    Const,
    Mapping,
    Object,
    Origin,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    Value,
    class_names,
    key_of,
    read_from,
    resolved,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.tensors import ELEMENTWISE, NUMBERS, REDUCTIONS


def known_method(
    state: PathState, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    if name in _OF_TENSORS or isinstance(receiver, Tensor):
        tensor = tensors.tensor_of(state, receiver)
        if tensor is not None:
            made = tensors.method(state, tensor, name, arguments, node, frame)
            return made or state.unknown(tensor.taint)
    if isinstance(receiver, Object):
        return _object_method(state, receiver, name, arguments, node, frame)
    if isinstance(receiver, (Sequence, Mapping)):
        return containers.container_method(state, receiver, name, arguments, frame)
    if isinstance(receiver, StateDict):
        return containers.state_method(state, receiver, name, arguments)
    if isinstance(receiver, Parameters):
        return receiver if name not in NUMBERS else state.unknown(receiver.taint)
    if isinstance(receiver, Const) and isinstance(receiver.value, str):
        text = containers.text_method(receiver.value, name, arguments)
        if text is not None:
            return text
    state.escape(node, frame, *arguments.values())
    return calls.result_of(state, ("method", key_of(receiver), name), receiver, arguments)


def _object_method(
    state: PathState, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    if name in known.PARAMETER_VIEWS:
        site = state.site(node, frame)
        return Parameters(receiver, state.tick(), site, named=name == "named_parameters", lazy=True)
    if name in known.SUBMODULE_VIEWS or name in ("items", "values", "keys", "get_submodule"):
        return _view(state, receiver, name, arguments)
    if name in ("get", "pop") and arguments.args and read_from(receiver) is not None:
        return subscripts.item(state, receiver, arguments.args[0])
    if name == "state_dict":
        return saving.state_of(state, receiver, node, frame)
    if name in known.RETURNS_SELF and (
        is_module(receiver) or receiver.origin is not Origin.ALLOCATED or name in ("to", "cuda")
    ):
        return receiver
    if name == "no_sync":
        return _no_sync(state, receiver, arguments, node, frame)
    if name in ("unshard", "reshard"):
        receiver.unsharded = name == "unshard"
        return state.unknown()
    if name in ("append", "extend", "insert", "add_module", "register_module"):
        return _appended(state, receiver, arguments, frame)
    if name in known.REPOINTING_METHODS:
        optimizers.repoint(state, arguments, node, frame)
        return _prepared(arguments)
    if name == "add_param_group" and receiver.captures:
        receiver.captures.extend(optimizers.captured(state, arguments))
        return NONE
    if name in ("clear", "__init__") and optimizers.repoint_self(state, receiver, node, frame):
        return NONE
    if name == "apply" and arguments.args and is_module(receiver):
        inside = state.part(receiver, ".apply()", taint=Taint.ELEMENT)
        calls.apply(state, arguments.args[0], Arguments([inside], {}), node, frame)
        return receiver
    return _other_method(state, receiver, name, arguments, node, frame)


def _other_method(
    state: PathState, receiver: Object, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    inert = name in known.INERT_METHODS or receiver.captures
    cls = next(iter(class_names(receiver.cls)), "")
    if not inert and not (cls and known.is_harmless(cls)):
        state.escape(node, frame, *arguments.values())
    unread = not isinstance(receiver.cls, (ClassValue, Symbol))
    if unread and not inert and receiver.escaped is None:
        receiver.escaped = state.tick()  # its own method may shard it
    taint = Taint.RANK if name in known.RANK_ATTRIBUTES else Taint.NONE
    result = calls.result_of(state, ("method", key_of(receiver), name), receiver, arguments)
    result.taint |= taint
    return result


def _view(state: PathState, receiver: Object, name: str, arguments: Arguments) -> Value:
    if name == "get_submodule":
        return state.part(receiver, ".get_submodule()")
    if name == "values":
        return receiver
    step = f".{name}()"
    made = receiver.attrs.get(step)
    if made is None:
        made = receiver.attrs[step] = state.part(receiver, step)
        if isinstance(made, Object) and name == "items":
            inner = element_of(state, receiver)
            made.elements["*"] = Sequence([state.unknown(Taint.ELEMENT), inner], kind="tuple")
    return made


def _no_sync(
    state: PathState, receiver: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    result = state.unknown()
    if is_unit(receiver) and not (isinstance(receiver.cls, ClassValue) and receiver.cls.opaque()):
        state.emit(NoSync(state.tick(), state.site(node, frame), receiver))
    else:
        site = state.site(node, frame)
        state.emit(Call(state.tick(), site, "no_sync", receiver, arguments, result))
    return result


def _appended(state: PathState, receiver: Object, arguments: Arguments, frame: Frame) -> Value:
    held = receiver.attrs.get("*appended*")
    filled = held if isinstance(held, Sequence) else Sequence([])
    receiver.attrs["*appended*"] = filled
    filled.items.extend(arguments.args)
    receiver.repeated |= frame.loops > 0 or len(filled.items) > 2
    for value in arguments.args:
        item = resolved(value)
        if isinstance(item, Object) and item.parent is None and item is not receiver:
            tracking.attach(state, item, receiver, "[]")
    receiver.elements.pop("*", None)
    return NONE


def _prepared(arguments: Arguments) -> Value:
    """``accelerator.prepare(a, b)`` gives its arguments back, in order."""
    values = arguments.args
    return values[0] if len(values) == 1 else Sequence(list(values), kind="tuple")


# A module has methods of other names in common with its parameters, such as `to` and `float`.
_OF_TENSORS = (REDUCTIONS.keys() | ELEMENTWISE) - known.KEEPS_SHARDED
