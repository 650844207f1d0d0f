"""Effects of sharding calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls, stores
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.modules import has_fsdp1, is_module, is_unit
from fsdplint.engine.interpreter.state import Effect, Frame, Group, PathState, is_const
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Choice,
    Condition,
    Const,
    Object,
    Sequence,
    Sharded,
    Symbol,
    Taint,
    Value,
    followed,
    may_be,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.names import FSDP1_UNITS


def _shard(
    generation: known.Generation,
    state: PathState,
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> Value:
    """Shard a module, or each module of a list, and return it."""
    target = arguments.get(0, "module")
    state.group = Group.UP  # FSDP2 creates a mesh, FSDP1 needs the group
    if target is None:
        return state.unknown()
    inner = followed(target)
    items = [*inner.items, *inner.rest] if isinstance(inner, Sequence) else [inner]
    for item in map(followed, items):
        if isinstance(item, Object):
            _shard_one(state, generation, item, arguments, node, frame)
    return target


def _shard_one(
    state: PathState,
    generation: known.Generation,
    module: Object,
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> None:
    """Mark one module as sharded and note the event."""
    time, site = state.tick(), state.site(node, frame)
    view = state.enumerating
    if view is not None and any(guard.progress for guard in state.guards):
        module = state.part(view, "[]")  # some of the submodules, not known which
    keeps: bool | None = False
    wraps: bool | None = False
    if generation is known.Generation.FSDP1:
        _initialise(state, module, arguments, node, frame)
        keeps = _flag(arguments, -1, "use_orig_params")
        wraps = _wraps_children(arguments)
    elif "auto_wrap_policy" in arguments.keywords:
        wraps = None  # the call fails, but its author expects children to be sharded
    module.sharded.append(Sharded(generation, time, site))
    _adopt(state, module)
    keywords, strategy = dict(arguments.keywords), arguments.get(2, "sharding_strategy")
    given = (keywords, strategy, tuple(arguments.args), arguments.open, arguments.partial)
    state.emit(Shard(time, site, generation, module, keeps, wraps, node, *given))


def _adopt(state: PathState, module: Object) -> None:
    """Make modules parts of an object that became known as a module by being sharded."""
    for name, value in list(module.attrs.items()):
        part = followed(value)
        if isinstance(part, Object) and is_module(part):
            stores.compose(state, module, part, f".{name}")


def _initialise(
    state: PathState, module: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> None:
    """Call FSDP1's ``param_init_fn`` once for the submodules that are on meta."""
    function = arguments.get(8, "param_init_fn")
    if function is not None and not is_const(function, None):
        inside = state.part(module, ".param_init_fn()", taint=Taint.ELEMENT)
        calls.apply(state, function, Arguments([inside], {}), node, frame)


def _flag(arguments: Arguments, position: int, keyword: str) -> bool | None:
    """Return a boolean argument that defaults to False; None if it is not known."""
    value = arguments.get(position, keyword)
    if value is None:
        return None if arguments.open else False
    return bool(value.value) if isinstance(value, Const) else None


def _wraps_children(arguments: Arguments) -> bool | None:
    """Return whether FSDP1 wraps submodules by its policy; None if it is not known."""
    policy = arguments.get(4, "auto_wrap_policy")
    strategy = arguments.get(2, "sharding_strategy")
    if policy is None and (arguments.open or arguments.keywords.keys() - known.FSDP1_KEYWORDS):
        return None
    if policy is not None and not is_const(policy, None):
        return True if not isinstance(policy, (Choice, Condition)) else None
    chosen = [each.name for each in may_be(strategy) if isinstance(each, Symbol)]
    shards = any(not name.endswith("NO_SHARD") for name in chosen)
    return False if strategy is None or shards else None


def _fsdp1_units(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """Evaluate ``FSDP.fsdp_modules(model)``: an empty list, if FSDP2 shards the model."""
    model = followed(arguments.get(0, "module") or NONE)
    if isinstance(model, Object) and is_unit(model) and not has_fsdp1(state, model):
        return Const(())
    return None


EFFECTS: Mapping[str, Effect] = {
    **{name: partial(_shard, kind) for name, kind in known.SHARDING_CALLS.items()},
    FSDP1_UNITS: _fsdp1_units,
}
