"""What calls of libraries do to abstract values: `knowledge` says which, this package says how."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.events import Call
from fsdplint.engine.execute import (
    callbacks,
    containers,
    devices,
    forwards,
    libraries,
    methods,
    optimizers,
    saving,
    sharding,
    tensors,
    tracking,
)
from fsdplint.engine.execute.builtins import BUILTINS, Effect
from fsdplint.engine.execute.groups import after_call
from fsdplint.engine.execute.modules import is_module
from fsdplint.engine.execute.state import Frame, PathState, is_const_text
from fsdplint.engine.values import (
    Arguments,
    ModuleScope,
    Object,
    Origin,
    Scope,
    Symbol,
    Taint,
    Value,
    resolved,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge import ranks
from fsdplint.knowledge.initialisation import META_CONTEXTS, SEEDS
from fsdplint.knowledge.names import FSDP1_UNITS, REGISTER_FORWARD, is_optimizer
from fsdplint.knowledge.options import RUNS_FUNCTION
from fsdplint.knowledge.tensors import DIVISIONS


def library_call(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    time, name = state.tick(), symbol.name
    result = _known_call(state, symbol, arguments, node, frame)
    tracking.used(state, time, name, arguments.values(), node, frame)
    if name in known.WATCHED_CALLS:
        names = _trained_names(frame) if name in known.STATE_CALLS else {}
        state.emit(Call(time, state.site(node, frame), name, None, arguments, result, names))
    _seeded(state, name, arguments)
    state.group_up = after_call(state.group_up, name, arguments)
    return result


def _seeded(state: PathState, name: str, arguments: Arguments) -> None:
    """Modules built from here on draw their weights by this seed."""
    if name in SEEDS:
        state.seed_differs = bool(taint_of(*arguments.values()) & Taint.RANK)


def _known_call(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    name = symbol.name
    computed = tensors.function(state, name, arguments, node, frame)
    if computed is not None:
        return computed
    handler = _FUNCTIONS.get(name) or BUILTINS.get(name)
    if handler is not None:
        return handler(state, arguments, node, frame)
    if name in known.SHARDING_CALLS:
        return sharding.shard(state, known.SHARDING_CALLS[name], arguments, node, frame)
    if is_optimizer(name):
        made = state.new(Origin.ALLOCATED, symbol, state.site(node, frame))
        optimizers.built(state, made, arguments, node, frame)
        return made
    if name in known.PLAIN_WRITES:
        return saving.plain_write(state, name, arguments, node, frame)
    if name in known.PLAIN_READS:
        return saving.plain_read(state, symbol, arguments, node, frame)
    if name in known.STATE_HELPERS:
        return saving.state_helper(state, name, arguments, node, frame)
    if name in known.RETURNS_ARGUMENT:
        position = known.RETURNS_ARGUMENT[name]
        values = arguments.values()
        if name == "torch.compile" and values:
            forwards.compiled(resolved(values[0]))
        return values[position] if len(values) > position else state.unknown()
    if name in known.CALLS_FIRST_ARGUMENT:
        return callbacks.call_argument(state, arguments, node, frame)
    if name in RUNS_FUNCTION:
        return callbacks.run_with_options(state, symbol, arguments, node, frame)
    if name in known.COPIES_CONTAINER and arguments.args:
        return containers.copied(arguments.args[0])
    if name in known.REPOINTING_CALLS:
        optimizers.repoint(state, arguments, node, frame)
    result = libraries.unlisted(state, symbol, arguments, node, frame)
    if name in ranks.MADE_UP:
        result.taint |= Taint.OWN
    return result


def library_method(
    state: PathState, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    time = state.tick()
    result = methods.known_method(state, receiver, name, arguments, node, frame)
    tracking.used(state, time, name, [receiver, *arguments.values()], node, frame)
    _note_weights(state, receiver, name, arguments)
    if name in DIVISIONS and arguments.args:
        quotient = receiver if name.endswith("_") else result
        tensors.divided(state, receiver, arguments.args[0], quotient, node, frame)
    cast = name in known.CASTS and isinstance(receiver, Object) and is_module(receiver)
    if name in known.WATCHED_METHODS or cast:
        names = _trained_names(frame) if name in known.STATE_CALLS else {}
        state.emit(Call(time, state.site(node, frame), name, receiver, arguments, result, names))
    return result


def _note_weights(state: PathState, receiver: Value, name: str, arguments: Arguments) -> None:
    """Tracks a module whose weights a method leaves undefined, or sets on some ranks only."""
    if not isinstance(receiver, Object):
        return
    alone = any(guard.divergent for guard in state.guards)
    if name == "to_empty" or (name == "load_state_dict" and alone):
        tracking.track(state, receiver)
    if name == "to" and any(is_const_text(value, "meta") for value in arguments.values()):
        receiver.on_meta = True


_FUNCTIONS: dict[str, Effect] = {
    "torch.device": devices.device,
    FSDP1_UNITS: sharding.fsdp1_units,
    **dict.fromkeys(META_CONTEXTS, devices.meta_context),
    "torch.multiprocessing.spawn": callbacks.spawn,
    "torch.multiprocessing.spawn.spawn": callbacks.spawn,
    REGISTER_FORWARD: forwards.register_forward,
}


def _trained_names(frame: Frame) -> dict[str, Object]:
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
