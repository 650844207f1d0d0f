"""Calls of a library's functions and classes that no table lists."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter import calls, tracking
from fsdplint.engine.interpreter.definitions import note_construction
from fsdplint.engine.interpreter.elements import named_items
from fsdplint.engine.interpreter.state import Frame, PathState, is_const
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Const,
    Object,
    Origin,
    Sequence,
    Symbol,
    Taint,
    Value,
    contained,
    followed,
    key_of,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge import ranks
from fsdplint.knowledge.launch import IS_UP
from fsdplint.knowledge.modules import HUGGING_FACE_CONSTRUCTORS, POLICY_FUNCTIONS
from fsdplint.knowledge.names import NN
from fsdplint.knowledge.ranks import Role


def unlisted(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a library's function or class of which no table has an effect."""
    result = _result(state, symbol, arguments, node, frame)
    if symbol.name in ranks.MADE_UP:
        result.taint |= Taint.OWN
    return result


def _result(
    state: PathState, symbol: Symbol, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Return the result: a rank, an object of a class, a presumed constant, or an unknown value."""
    name = symbol.name
    package, _, last = name.rpartition(".")
    if not known.is_harmless(name):
        state.escape(node, frame, *arguments.values())
    if name == IS_UP and state.group_up is False and not state.importing:
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
    note_construction(state, made)
    if symbol.name.startswith(f"{NN}."):
        made.taint = Taint.NONE
        names = {id(item): f".{name}" for name, item in named_items(made).items()}
        for item in contained(Sequence(list(arguments.args))):
            if isinstance(item, Object) and item.parent is None and item is not made:
                tracking.attach(state, item, made, names.get(id(item), "[]"))
    return made
