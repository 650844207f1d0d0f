"""The calls that take or load a state of an FSDP1 model, and what chooses the type of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import EVERY_RANK
from fsdplint.engine.interpreter.values import Object, followed
from fsdplint.fixes.code import Code
from fsdplint.fixes.optimizer_loads import CONVERTS
from fsdplint.fixes.state_calls import TAKES, contexts, of_model
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import SET_STATE_DICT_TYPE, STATE_DICT_TYPE, SUMMON_FULL_PARAMS
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.migrate.modes import wraps_by_ddp
from fsdplint.migrate.step import Context

METHODS = ("state_dict", "load_state_dict")


@dataclass(slots=True, eq=False)
class State:
    """A call that takes or loads a state of an FSDP1 model.

    Attributes:
        choices: the calls that choose the type of the state on the paths to this one; None for a
            path on which none does.
        choosers: the file of each of them.
        some_ranks: it is known that only some ranks reach it.
        is_conversion: it converts an optimizer's state, which another call loads.
        may_be_ddp: its model may be DDP's in another mode of the program.
        shares_steps: a saved optimizer state may have one step for several parameters.
    """

    code: Code
    call: ir.Call
    choices: set[ir.Call | None] = field(default_factory=set)
    choosers: dict[ir.Call, Code] = field(default_factory=dict)
    some_ranks: bool = False
    is_conversion: bool = False
    may_be_ddp: bool = False
    shares_steps: bool = True


def found_states(context: Context) -> list[State]:
    """Return the calls that the program's paths reach, and those that name FSDP1 in the text."""
    found: dict[ir.Call, State] = {}
    program = context.program
    traces = (*program.traces, *program.method_traces)
    for trace in traces:
        for event in trace.calls(*METHODS, *TAKES, *CONVERTS):
            _note(context, trace, event, found)
    for code in context.codes("state_dict"):
        for node in code.walk("state_dict"):
            if isinstance(node, ir.Call) and node not in found:
                _note_named(context, code, node, found)
    shards = [s for t in traces for s in t.of(Shard) if s.generation is Generation.FSDP1]
    shares = not shards or any(shard.keeps_parameters is not True for shard in shards)
    ddp = wraps_by_ddp(context)
    for state in found.values():
        name = context.name(state.code, state.call.func)
        state.is_conversion = name in CONVERTS
        state.shares_steps = shares
        state.may_be_ddp = ddp and name not in (*TAKES, *CONVERTS) and state.choices == {None}
    return list(found.values())


def _note(context: Context, trace: Trace, event: Call, found: dict[ir.Call, State]) -> None:
    node, path = event.site.node, event.site.path
    module = _model(event)
    if path not in context.files or not isinstance(node, ir.Call) or module is None:
        return
    if event.name in METHODS and not _is_unit(context, trace, event, module):
        return
    code = Code.of(context.program.tree(path))
    state = found.setdefault(node, State(code, node))
    state.some_ranks |= any(guard.ranks != EVERY_RANK for guard in event.site.guards)
    choice = _choice(context, trace, event, module)
    state.choices.add(None if choice is None else choice[1])
    if choice is not None:
        state.choosers[choice[1]] = choice[0]


def _model(event: Call) -> Object | None:
    """Return the model whose state a call takes or loads."""
    if event.name in METHODS:
        found = None if event.receiver is None else followed(event.receiver)
    else:
        found = event.argument(0, "model")
    return found if isinstance(found, Object) else None


def _is_unit(context: Context, trace: Trace, event: Call, module: Object) -> bool:
    """True if FSDP1 surely can wrap a module, or a part of it, before the call."""
    return any(
        shard.generation is Generation.FSDP1
        and shard.time < event.time
        and (shard.module is module or module in shard.module.ancestors())
        and context.program.together(event.site, shard.site)
        for shard in trace.of(Shard)
    )


def _choice(
    context: Context, trace: Trace, event: Call, module: Object
) -> tuple[Code, ir.Call] | None:
    """Return what chooses the type of a state on a path: a block around it, or the last setting."""
    chosen = [c for c in trace.calls(STATE_DICT_TYPE, SET_STATE_DICT_TYPE) if c.time < event.time]
    own = [each for each in chosen if each.argument(0, "module") is module]
    others = {each.site.node for each in chosen} - {each.site.node for each in own}
    for path, node in reversed(event.site.frames()):
        if path in context.files:
            code = Code.of(context.program.tree(path))
            for _, around in contexts(code, node):
                if around not in others:
                    return code, around
    for setting in reversed([each for each in own if each.name == SET_STATE_DICT_TYPE]):
        call = setting.site.node
        if isinstance(call, ir.Call) and setting.site.path in context.files:
            return Code.of(context.program.tree(setting.site.path)), call
    return None


def _note_named(context: Context, code: Code, call: ir.Call, found: dict[ir.Call, State]) -> None:
    """Note a call that no path reaches, if it names FSDP1 or the model of a block around it."""
    model, named = of_model(code, call), context.name(code, call.func) in (*TAKES, *CONVERTS)
    around = None if model is None and not named else next(_around(code, call, model), None)
    if not named and around is None and not _is_summoned(context, code, call, model):
        return
    tests = (each.test for each in code.ancestors(call) if isinstance(each, ir.If))
    state = State(code, call, {around}, some_ranks=any(means_rank(code.slice(t)) for t in tests))
    state.choosers.update({} if around is None else {around: code})
    found[call] = state


def _is_summoned(context: Context, code: Code, call: ir.Call, model: ir.Expr | None) -> bool:
    """True if a call is in a block of `summon_full_params` for its model."""
    items = (i for b in code.ancestors(call) if isinstance(b, ir.With) for i in b.items)
    calls = [item.value for item in items if isinstance(item.value, ir.Call)]
    summons = [c for c in calls if context.name(code, c.func) == SUMMON_FULL_PARAMS and c.args]
    names = [code.slice(each.args[0].value) for each in summons]
    return model is not None and code.slice(model) in names


def _around(code: Code, call: ir.Call, model: ir.Expr | None) -> Iterator[ir.Call]:
    for _, choice in contexts(code, call):
        chosen = choice.args[0].value if choice.args else None
        # A conversion does not say by its form which of its arguments is the model.
        if model is None or (chosen is not None and code.slice(chosen) == code.slice(model)):
            yield choice


def entered(context: Context) -> set[ir.Node]:
    """Return the calls of the project's functions that the analysis follows."""
    traces = (*context.program.traces, *context.program.method_traces)
    return {node for trace in traces for event in trace.of(Call) for _, node in event.site.calls}
