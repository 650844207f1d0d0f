"""State dicts of modules and optimizers, and files that are written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls
from fsdplint.engine.interpreter.events import PlainWrite, states_in
from fsdplint.engine.interpreter.modules import cut_by_fsdp1, holds_fsdp2
from fsdplint.engine.interpreter.state import Effect, Frame, PathState, is_const
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Const,
    Object,
    Sequence,
    StateDict,
    Symbol,
    Value,
    followed,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.names import KEYWORD_ONLY


def state_of(state: PathState, owner: Object, _: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Return ``owner.state_dict()``: local shards, if FSDP2 shards the owner or its model.

    An FSDP1 model gathers its state by default; an FSDP1 optimizer does not.
    """
    if owner.captures:
        site = state.site(node, frame)
        modules = [capture.module for capture in owner.captures]
        if any(holds_fsdp2(state, module) for module in modules):
            return StateDict(modules[0], site, optimizer=owner)
        if any(cut_by_fsdp1(state, capture) for capture in owner.captures):
            return StateDict(modules[0], site, owner, generation=known.Generation.FSDP1)
    elif holds_fsdp2(state, owner):
        return StateDict(owner, state.site(node, frame))
    return state.unknown(owner.taint)


def _state_helper(
    name: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return what ``get_model_state_dict`` and the like return, if it is surely sharded."""
    module = followed(arguments.get(0, "model") or NONE)
    options = followed(arguments.get(KEYWORD_ONLY, "options") or NONE)
    if arguments.open or not isinstance(module, Object) or not holds_fsdp2(state, module):
        return state.unknown()
    full: Value | None = None
    if isinstance(options, Object) and isinstance(options.cls, Symbol):
        full = options.keywords.get("full_state_dict", Const(False))
    sharded = is_const(options, None) or is_const(full or NONE, False)
    if not sharded:
        return state.unknown()
    site, live = state.site(node, frame), True
    if isinstance(options, Object):
        moved = options.keywords.get("cpu_offload", Const(False))
        live = not options.open and is_const(moved, False)
    position = known.STATE_HELPERS[name]
    optimizer = (
        None if position is None else followed(arguments.get(position, "optimizers") or NONE)
    )
    of = optimizer if isinstance(optimizer, Object) else None
    sharded_state = StateDict(module, site, of, live=live)
    return (
        Sequence([StateDict(module, site, live=live), sharded_state], kind="tuple")
        if name.endswith("get_state_dict")
        else sharded_state
    )


def _plain_write(
    name: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    value_at, target_at = known.PLAIN_WRITES[name]
    value = arguments.get(value_at.position, value_at.keyword)
    target = arguments.get(target_at.position, target_at.keyword)
    if value is not None:
        state.note(PlainWrite, node, frame, name, value, target, states_in(value))
    return NONE


def _plain_read(
    name: str, state: PathState, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return what a file holds, e.g. by ``torch.load``; its parts know where they come from.

    It holds the same whichever device the rank puts it on.
    """
    at = known.PLAIN_READS[name]
    keywords = {key: arguments.keywords[key] for key in arguments.keywords.keys() - known.PLACEMENT}
    read = replace(arguments, keywords=keywords)
    made = calls.result_of(state, ("call", name), Symbol(name), read)
    made.site, made.file = state.site(node, frame), arguments.get(at.position, at.keyword)
    return made


EFFECTS: Mapping[str, Effect] = {
    **{name: partial(_plain_write, name) for name in known.PLAIN_WRITES},
    **{name: partial(_plain_read, name) for name in known.PLAIN_READS},
    **{name: partial(_state_helper, name) for name in known.STATE_HELPERS},
}
