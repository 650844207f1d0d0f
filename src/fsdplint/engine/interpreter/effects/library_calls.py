"""Calls of libraries: their effect, the uses and events that they are, and the process group.

A function that no table lists has an unknown result, and may do anything to its arguments unless it
is known to be harmless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingType

from fsdplint.engine import ir
from fsdplint.engine.interpreter import (
    accelerators,
    calls,
    declared,
    differing,
    optimizers,
    releases,
    tensors,
    tracking,
)
from fsdplint.engine.interpreter.definitions import is_sampler, note_construction
from fsdplint.engine.interpreter.effects import (
    builtins,
    methods,
    rows,
    saving,
    sharding,
    torch_functions,
)
from fsdplint.engine.interpreter.effects.builtins import hold_copy
from fsdplint.engine.interpreter.elements import named_items
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.frameworks import is_watched
from fsdplint.engine.interpreter.modules import is_average, is_module
from fsdplint.engine.interpreter.state import GROUP_DOWN, Effect, Frame, Group, PathState, is_const
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Const,
    Context,
    Mapping,
    ModuleScope,
    Object,
    Origin,
    Scope,
    Sequence,
    Symbol,
    Taint,
    Value,
    choice,
    class_names,
    contained,
    followed,
    key_of,
    may_be,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge import ranks
from fsdplint.knowledge.collectives import C10D_CALLS, MAKES_EQUAL, WORLD_CALLS
from fsdplint.knowledge.frameworks import is_training_arguments
from fsdplint.knowledge.fsdp import FSDP1_STATICS
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.knowledge.launch import (
    DESTROY,
    DEVICE_MESH,
    GET_RANK,
    GET_WORLD_SIZE,
    INIT,
    INIT_DEVICE_MESH,
    IS_UP,
    TORCH_DEVICE,
    TRUE_ON_CUDA,
)
from fsdplint.knowledge.modules import (
    AVERAGED_MODEL,
    HUGGING_FACE_CONSTRUCTORS,
    POLICY_FUNCTIONS,
)
from fsdplint.knowledge.names import NN, is_optimizer, is_schedule
from fsdplint.knowledge.packages import may_set_up
from fsdplint.knowledge.ranks import Role
from fsdplint.knowledge.tensors import DIVISIONS, MAKES_TENSOR, TENSOR

# Methods of Python's containers do nothing to what a container holds.
_OF_CONTAINERS = frozenset(name for kind in (dict, list, set, tuple, deque) for name in dir(kind))
_MAKES_GROUP = frozenset({INIT, INIT_DEVICE_MESH, DEVICE_MESH})
# Where one of these is called, something has made the process group.
_NEEDS_GROUP = frozenset({*C10D_CALLS, GET_RANK, GET_WORLD_SIZE})


def call(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a library's function or class: apply its effect, and note the call if it is watched."""
    time, name, destroyed = state.tick(), symbol.name, state.group is Group.DESTROYED
    if name in FSDP1_STATICS:
        declared.given(state, name, arguments, node, frame)
    result = _known_call(state, symbol, arguments, node, frame)
    tracking.used(state, time, name, arguments.values(), node, frame)
    if name in known.WATCHED_CALLS:
        names = _trained_names(frame) if name in known.STATE_CALLS else {}
        site = state.site(node, frame)
        state.emit(Call(time, site, name, None, arguments, result, names, destroyed))
    if is_schedule(name):
        optimizers.scheduled(state, arguments)
    if name in SEEDS:  # modules built from here on draw their weights by this seed
        state.seed_differs = bool(taint_of(*arguments.values()) & Taint.RANK)
    if name in MAKES_EQUAL and arguments.args:
        if _is_of_all(state, name, arguments):
            _make_equal(state, arguments.args[0])
        for held in contained(arguments.args[0]):
            differing.forget(held, state.unknown)
    state.group = _group_after(state.group, name, arguments)
    return result


def _is_of_all(state: PathState, name: str, arguments: Arguments) -> bool:
    """True if a collective surely has all ranks take part."""
    place = WORLD_CALLS[name]
    group = arguments.get(place.position, place.keyword)
    known = not arguments.open and (group is None or is_const(group, None))
    return known and not any(guard.divergent for guard in state.guards)


def _make_equal(state: PathState, value: Value) -> None:
    """Note that a tensor, or what a list holds, is the same on all ranks from here on."""
    if isinstance(value, Choice):
        for option in value.options:
            _make_equal(state, option)
    elif isinstance(value, Sequence):
        for items in (value.items, value.rest):
            items[:] = [state.unknown() if i.taint & Taint.RANK else i for i in items]
    elif isinstance(value, Object) and value.role is None:
        value.key = None
    else:
        return
    value.taint = value.taint.without(Taint.RANK)


def _group_after(group: Group | None, name: str, arguments: Arguments) -> Group | None:
    """Return the state of the process group after a call of a library."""
    if name in _MAKES_GROUP:
        return Group.UP
    if name == DESTROY:
        return group if arguments.values() else Group.DESTROYED
    if group not in GROUP_DOWN:
        return group
    may_be_up = name in _NEEDS_GROUP or may_set_up(name) or _hands_on(arguments.values())
    return None if may_be_up else group


def _hands_on(values: Iterable[Value]) -> bool:
    """True if a library is given a class whose construction may initialize the group."""
    items = [item for value in values for item in contained(value)]
    classes = [item for item in items if isinstance(item, (ClassValue, Symbol))]
    return any(may_set_up(name) for cls in classes for name in class_names(cls))


def _known_call(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return the value of a call, from the tables or as an unlisted function's."""
    tensors.operated(state, symbol.name, arguments.values(), node, frame)
    result = tensors.function(state, symbol.name, arguments, node, frame)
    result = tensors.made_by(state, result, node, frame)
    if result is None and symbol.name in EFFECTS:
        result = EFFECTS[symbol.name](state, arguments, node, frame)
    if result is not None:
        return result
    if is_optimizer(symbol.name):
        return optimizers.construct(state, symbol, arguments, node, frame)
    return _unlisted(state, symbol, arguments, node, frame)


def method(
    state: PathState, receiver: Value, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a method that is not the program's own, and note the call if it is watched."""
    optimizers.used(state, receiver, name, arguments)
    time, destroyed = state.tick(), state.group is Group.DESTROYED
    result = methods.known_method(state, receiver, name, arguments, node, frame)
    if not (name in _OF_CONTAINERS and isinstance(receiver, (Mapping, Sequence))):
        tracking.used(state, time, name, [receiver, *arguments.values()], node, frame)
    _note_weights(state, receiver, name, arguments)
    if name in DIVISIONS and arguments.args:
        quotient = receiver if name.endswith("_") else result
        tensors.divided(state, receiver, arguments.args[0], quotient, node, frame)
    cast = name in known.CASTS and isinstance(receiver, Object) and is_module(receiver)
    base = name == "__init__" and isinstance(receiver, Object) and is_sampler(receiver)
    if name in known.WATCHED_METHODS or cast or base or is_watched(receiver, name):
        names = _trained_names(frame) if name in known.STATE_CALLS else {}
        site = state.site(node, frame)
        state.emit(Call(time, site, name, receiver, arguments, result, names, destroyed))
    if name == "__init__" and isinstance(receiver, Object) and is_average(receiver):
        hold_copy(state, receiver, arguments)
        state.emit(Call(time, state.site(node, frame), AVERAGED_MODEL, None, arguments, receiver))
    return result


def _note_weights(state: PathState, receiver: Value, name: str, arguments: Arguments) -> None:
    """Track a module whose weights a method leaves undefined, or sets on some ranks only."""
    if not isinstance(receiver, Object):
        return
    alone = any(guard.divergent for guard in state.guards)
    if name == "to_empty" or (name == "load_state_dict" and alone):
        tracking.track(state, receiver)
    if name == "to" and any(is_const(value, "meta") for value in arguments.values()):
        receiver.on_meta = True


def _trained_names(frame: Frame) -> dict[str, Object]:
    """Return the modules and optimizers that a function can name, nearest and shortest first.

    Attributes of its variables are included.
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
    """Yield a variable that is an object, and its attributes unless it is a module."""
    value = followed(value)
    if not isinstance(value, Object):
        return
    yield name, value
    for attribute, held in () if is_module(value) else list(value.attrs.items()):
        inner = followed(held)
        if attribute.isidentifier() and isinstance(inner, Object):
            yield f"{name}.{attribute}", inner


def _unlisted(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a library's function or class of which no table has an effect."""
    result = _result(state, symbol, arguments, node, frame)
    if symbol.name in ranks.MADE_UP:
        result.taint |= Taint.OWN
        if isinstance(result, Object) and result.site is None:
            result.site = state.site(node, frame)
    differing.called(symbol.name, result, arguments)
    return result


def _result(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return the result: a rank, an object of a class, a presumed constant, or an unknown value."""
    name = symbol.name
    package, _, last = name.rpartition(".")
    if not known.is_harmless(name) and not is_training_arguments(name):
        state.escape(node, frame, *arguments.values())
    if name == IS_UP and state.group in GROUP_DOWN and not state.importing:
        return Const(False)
    if name in known.PRESUMED:
        return Const(known.PRESUMED[name])
    if name in known.RANK_CALLS or name in ranks.FUNCTIONS:
        return _rank_call(state, name, arguments)
    if last in HUGGING_FACE_CONSTRUCTORS:
        return _constructed(state, Symbol(package), arguments, node, frame)
    if last[:1].isupper():
        return _constructed(state, symbol, arguments, node, frame)
    made = calls.result_of(state, ("call", name), symbol, arguments)
    if TRUE_ON_CUDA.get(name) == [each.value for each in arguments.args if type(each) is Const]:
        made.rank_source = name
    optimizers.offered(state, made, arguments, node, frame)
    if name in MAKES_TENSOR:
        made.cls = Symbol(TENSOR)
    if name in POLICY_FUNCTIONS and not arguments.open:
        # What an imported module does is no event.
        made.cls, made.site = symbol, state.site(node, frame)
        made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
    return made


def _rank_call(state: PathState, name: str, arguments: Arguments) -> Value:
    """Return a rank or world size; only of the default group it is a rank of the run."""
    group = followed(arguments.get(0, "group") or NONE)
    if name in ranks.FUNCTIONS and is_const(group, None):
        role = ranks.FUNCTIONS[name]
        taint = Taint.NONE if role is Role.SIZE else Taint.RANK
        made = state.unknown(taint, key=("call", name))
        made.role, made.rank_source = role, name
        return made
    taint = Taint.RANK if name in known.RANK_CALLS else Taint.NONE
    return state.unknown(taint, key=("call", name, key_of(group)))


def _constructed(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Create an object of a library's class; a module container gets its parts."""
    made = state.new(
        Origin.ALLOCATED, symbol, state.site(node, frame), taint_of(*arguments.values())
    )
    made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
    made.open = arguments.open
    accelerators.launched(state, made)
    optimizers.offered(state, made, arguments, node, frame)
    note_construction(state, made)
    if symbol.name.startswith(f"{NN}."):
        made.taint = Taint.NONE
        names = {id(item): f".{name}" for name, item in named_items(made).items()}
        for item in contained(Sequence(list(arguments.args))):
            if isinstance(item, Object) and item.parent is None and item is not made:
                tracking.attach(state, item, made, names.get(id(item), "[]"))
    return made


def _device(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Evaluate ``torch.device``: as a context, "meta" has modules built on the meta device."""
    given = may_be(arguments.args[0]) if arguments.args else ()
    metas = [is_const(value, "meta") for value in given]
    if any(metas) and all(metas):
        return Context("meta", ())
    symbol = Symbol(TORCH_DEVICE)
    made = _unlisted(state, symbol, arguments, node, frame)
    if isinstance(made, Object):
        made.cls, made.args = symbol, tuple(arguments.args)
        made.keywords = dict(arguments.keywords)
    return choice([Context("meta", ()), made]) if any(metas) else made


# By canonical name; a later row overrides an earlier one.
EFFECTS: MappingType[str, Effect] = {
    **saving.EFFECTS,
    **sharding.EFFECTS,
    **rows.EFFECTS,
    **optimizers.EFFECTS,
    **releases.EFFECTS,
    **calls.EFFECTS,
    TORCH_DEVICE: _device,
    **torch_functions.EFFECTS,
    **builtins.EFFECTS,
}
