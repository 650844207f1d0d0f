"""State dicts of FSDP1 models: calls that take or load one, and what chooses their type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.optimizer_loads import optimizer_load
from fsdplint.fixes.state_calls import Rewrite, choices, contexts, rewrite, without_contexts
from fsdplint.fixes.state_options import (
    FULL,
    SHARDED,
    LocalTypeError,
    StateType,
    UnknownTypeError,
    state_type,
)
from fsdplint.knowledge.fsdp import (
    REKEY_OPTIM_STATE_DICT,
    SET_STATE_DICT_TYPE,
    STATE_DICT_TYPE,
    STATE_DICT_TYPES,
)
from fsdplint.migrate.fsdp2.state_calls import State, found_states
from fsdplint.migrate.fsdp2.state_uses import check_uses
from fsdplint.migrate.step import Change, Context, Found, Question, attempt, kept

_CHOOSERS = {name.rpartition(".")[2] for name in (STATE_DICT_TYPE, SET_STATE_DICT_TYPE)}
# Source: a run on two ranks, torch 2.13.
_DDP = "of a model that DDP wraps instead, the keys are without `module.`"


def states(context: Context) -> Iterator[Found]:
    """Yield a change for each choice of a state dict type, and for each call that none governs."""
    found = found_states(context)
    for code in context.codes("state_dict_type", "rekey_optim_state_dict"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call):
                yield from _of_call(context, code, node, found)
            elif isinstance(node, ir.With) and _is_outermost(code, node):
                yield from attempt(code, node, partial(_block, context, code, node, found))
    for state in found:
        if state.choices == {None}:
            alone = partial(_change, context, [state], {}, state.code, state.call)
            yield from attempt(state.code, state.call, alone)


def _is_outermost(code: Code, block: ir.With) -> bool:
    """True if a block chooses types and is in no other one, with which its lines would move."""
    return any(choices(code, block)) and not any(True for _ in contexts(code, block))


def _of_call(
    context: Context, code: Code, call: ir.Call, found: Sequence[State]
) -> Iterator[Found]:
    name = context.name(code, call.func)
    if name == SET_STATE_DICT_TYPE:
        yield from attempt(code, call, partial(_setting, context, code, call, found))
    elif name == REKEY_OPTIM_STATE_DICT:
        reason = (
            "the state dict helpers take and return states by parameter names alone; give the "
            "state without this call to `set_optimizer_state_dict` by hand"
        )
        yield kept(code, call, reason)
    elif not name and ir.last_name(call.func) in _CHOOSERS and call.args:
        kind = context.name(code, call.args[0].value)
        if kind.startswith(STATE_DICT_TYPES):
            yield kept(code, call, "it does not name its model; remove it by hand")


def _block(context: Context, code: Code, block: ir.With, found: Sequence[State]) -> Change:
    """Replace ``with FSDP.state_dict_type(…)`` by options of the calls that it governs."""
    types = {call: _type(context, code, call) for call in choices(code, block)}
    governed = [state for state in found if not state.choices.isdisjoint(types)]
    if not governed:
        raise NoFixError("no call is known that takes a state in it; replace it by hand")
    for call in types:
        check_uses(context, code, block, call, governed)
    change = _change(context, governed, types, code, block)
    return replace(change, edits=tuple(without_contexts(code, block, set(types), change.edits)))


def _setting(context: Context, code: Code, call: ir.Call, found: Sequence[State]) -> Change:
    """Remove ``FSDP.set_state_dict_type(…)``; the calls that it governs get options instead."""
    kind = _type(context, code, call)
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or statement.value is not call:
        raise NoFixError("its result is used, which FSDP2 does not have; remove it by hand")
    governed = [state for state in found if call in state.choices]
    start, end = code.line_start(statement.start), code.line_end(statement.end)
    if len(code.block(statement).statements) == 1:
        edit = code.edit(statement.start, statement.end, "pass")
    elif code.alone(statement) and not code.comments(start, end):
        edit = code.delete_lines(start, end)
    else:
        raise NoFixError(f"`{code.short(statement)}` shares its line; remove it by hand")
    return _change(context, governed, {call: kind}, code, call, [edit])


def _change(
    context: Context,
    governed: Sequence[State],
    types: Mapping[ir.Call, StateType],
    code: Code,
    node: ir.Node,
    edits: Sequence[Edit] = (),
) -> Change:
    """Return the change of all calls that something governs, and of that itself."""
    imports: dict[str, Imports] = {}
    done = []
    for state in governed:
        own = imports.setdefault(state.code.path, Imports(state.code, state.call))
        done.append(_rewritten(context, state, types, own))
    if not done:
        what = f"remove `{code.short(node)}`"
    elif len(done) == 1 and not done[0].by_helper:
        what = f"drop `{governed[0].code.short(governed[0].call)}`"
    elif len(done) == 1:
        what = f"replace `{governed[0].code.short(governed[0].call)}` by a state dict helper"
    else:
        names = [f"`{state.code.short(state.call)}`" for state in governed]
        what = f"replace {', '.join(dict.fromkeys(names))} by state dict helpers"
    differs = "; ".join(dict.fromkeys(each.differs for each in done if each.differs))
    every = (*edits, *(edit for each in done for edit in each.edits))
    span = code.span(node)
    return Change(span, what, tuple(dict.fromkeys(every)), tuple(imports.values()), differs)


def _rewritten(
    context: Context,
    state: State,
    types: Mapping[ir.Call, StateType],
    imports: Imports,
) -> Rewrite:
    code, call = state.code, state.call
    kinds = {_kind_of(context, state, choice, types) for choice in state.choices}
    if len(kinds) > 1:
        raise NoFixError(
            f"`{code.short(call)}` has another state dict type in another call of its function; "
            "pass the options by hand"
        )
    kind = kinds.pop()
    if state.some_ranks and (kind.full or state.is_conversion):
        raise NoFixError(
            f"only some ranks reach `{code.short(call.func)}()`, and FSDP1 and FSDP2 need all of "
            "them there: the job hangs; let every rank run it, then migrate again"
        )
    if state.is_conversion:
        return optimizer_load(code, call, kind, imports, shares_steps=state.shares_steps)
    done = rewrite(code, call, kind, imports)
    return replace(done, differs=done.differs or _DDP) if state.may_be_ddp else done


def _kind_of(
    context: Context, state: State, choice: ir.Call | None, types: Mapping[ir.Call, StateType]
) -> StateType:
    if choice is None:
        return StateType()  # what FSDP1 does if nothing chooses
    return types[choice] if choice in types else _type(context, state.choosers[choice], choice)


def _type(context: Context, code: Code, choice: ir.Call) -> StateType:
    """Return what a call chooses, by its text or by the user's answer."""
    given = argument_of(choice, 1, "state_dict_type")
    try:
        return state_type(code, choice)
    except LocalTypeError:
        text = "FSDP2 has no local state dict, and reads no files with one. Which replaces it?"
        choices = (SHARDED, FULL)
    except UnknownTypeError:
        if given is None:
            raise
        text, choices = f"Which state dict type is `{code.short(given.value)}`?", (FULL, SHARDED)
    span = code.span(choice)
    question = Question(span, "state-dict-type", text, choices)
    return state_type(code, choice, context.decided(question))
