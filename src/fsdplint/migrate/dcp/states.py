"""Expressions that give the state of a model or an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fsdplint.engine import ir
from fsdplint.engine.facts.state_files import sharded_writes
from fsdplint.engine.frontend.tree import blocks
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.gather_state import model_name, receiver
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    HELPERS,
    STATE_OPTIONS,
)
from fsdplint.migrate.calls import definition
from fsdplint.migrate.step import Context

# Options about gathering, which a checkpoint of shards has no use for.
_GATHERING = frozenset({"full_state_dict", "cpu_offload", "broadcast_from_rank0"})


@dataclass(frozen=True, slots=True)
class State:
    """A call that gives a state.

    Attributes:
        model: its text.
        optimizer: the text of the optimizer if the state is one's, else "".
        options: the arguments of `StateDictOptions` that matter without gathering.
        is_helper: the call is one of the helpers' itself.
        raw: the call is a ``state_dict()``, whose file holds the shards of one rank.
        sometimes: other code gives it where the model is not sharded, without a process group.
    """

    call: ir.Call
    model: str
    optimizer: str
    options: str = ""
    is_helper: bool = False
    raw: bool = False
    sometimes: bool = False

    @property
    def kind(self) -> str:
        """What the state is of, for the name of a variable."""
        return "optimizer" if self.optimizer else "model"


def state_of(context: Context, code: Code, value: ir.Expr) -> State | None:
    """Return the state that an expression is, None if it is none or nothing shows it.

    If a variable has it from several places, one of which is a helper, the others are for models
    that are not sharded.
    """
    meant = code.meaning(value)
    found = [meant]
    if isinstance(meant, ir.Name):
        found = [each for each in code.assigned(meant) if each.start < value.start]
        last = latest(code, value)
        if last is not None:
            found = [each for each in found if each.start >= last.start]
        pair = _of_pair(context, code, meant)
        if pair is not None:
            return pair
    states = [_helped(context, code, each) or _returned(context, code, each) for each in found]
    known = [each for each in states if each is not None]
    others = [each for each, state in zip(found, states, strict=True) if state is None]
    if len(known) == 1 and all(map(_is_unsharded, others)):
        return replace(known[0], sometimes=known[0].sometimes or bool(others))
    raws = [_raw(context, code, each) for each in found] if not known else []
    return raws[0] if len(raws) == 1 else None


def _is_unsharded(value: ir.Expr) -> bool:
    """Return whether a value is what code has instead of a state of a sharded model."""
    if isinstance(value, ir.Call):
        return ir.last_name(value.func) == "state_dict"
    empty = isinstance(value, ir.DictDisplay) and not value.items
    return empty or (isinstance(value, ir.Constant) and value.value is None)


def _helped(context: Context, code: Code, value: ir.Expr) -> State | None:
    """Return the state that one of the helpers gives."""
    if not isinstance(value, ir.Call):
        return None
    name = context.name(code, value.func)
    if name not in (GET_MODEL_STATE, GET_OPTIMIZER_STATE):
        return None
    model, optimizer = argument_of(value, 0, "model"), argument_of(value, 1, "optimizers")
    if model is None or (name == GET_OPTIMIZER_STATE and optimizer is None):
        raise NoFixError(f"`{code.short(value)}` hides its arguments; write them out")
    text = "" if name == GET_MODEL_STATE or optimizer is None else code.slice(optimizer.value)
    return State(value, code.slice(model.value), text, _options(context, code, value), True)


def _returned(context: Context, code: Code, value: ir.Expr) -> State | None:
    """Return the state that a function of the file returns for the arguments of a call.

    It may also gather the same state by hand, tensor by tensor.

    Raises:
        NoFixError: it returns it in some cases only.
    """
    if not isinstance(value, ir.Call) or dotted(value.func) is None:
        return None
    named = [each for each in code.functions if each.name == ir.last_name(value.func)]
    if len(named) != 1:
        return None
    nodes = code.nodes_of(named[0])
    results = [node.value for node in nodes if isinstance(node, ir.Return)]
    states = [None if each is None else _helped(context, code, each) for each in results]
    known = [each for each in states if each is not None]
    if not known:
        return None
    others = [each for each, state in zip(results, states, strict=True) if state is None]
    unsharded = all(each is not None and _is_unsharded(each) for each in others)
    by_hand = any(isinstance(n, ir.Call) and ir.last_name(n.func) == "full_tensor" for n in nodes)
    if len(known) > 1 or not (unsharded or by_hand):
        raise NoFixError(
            f"`{named[0].name}` returns something else in some cases; let it always return what "
            "the state dict helper returns, then migrate again"
        )
    names = [each.name for each in named[0].parameters]
    given = dict(zip(names[isinstance(value.func, ir.Attribute) :], value.args, strict=False))
    given |= {each.keyword: each for each in value.args if each.keyword is not None}
    texts = {name: code.slice(each.value) for name, each in given.items()}
    texts |= {"self": "self"} if dotted(value.func) == f"self.{named[0].name}" else {}
    parts = (known[0].model, known[0].optimizer)
    moved = [_renamed(each, texts) for each in parts]
    if None in moved:
        return None
    return State(
        value,
        moved[0] or "",
        moved[1] or "",
        known[0].options,
        sometimes=unsharded and bool(others),
    )


def _renamed(path: str, texts: Mapping[str, str]) -> str | None:
    """Return a path of a function with the argument for its first name."""
    root, dot, rest = path.partition(".")
    return path if not path else None if root not in texts else f"{texts[root]}{dot}{rest}"


def _of_pair(context: Context, code: Code, name: ir.Name) -> State | None:
    """Return the part of ``model_state, optimizer_state = get_state_dict(…)`` that a name is."""
    for node in code.nodes_of(code.scope(name)):
        target = node.targets[0] if isinstance(node, ir.Assign) else None
        if not isinstance(node, ir.Assign) or not isinstance(target, ir.Collection):
            continue
        call = node.value
        names = [each.id if isinstance(each, ir.Name) else "" for each in target.elements]
        of_both = isinstance(call, ir.Call) and context.name(code, call.func) == GET_STATE
        if not of_both or not isinstance(call, ir.Call) or name.id not in names:
            continue
        model, optimizer = argument_of(call, 0, "model"), argument_of(call, 1, "optimizers")
        if model is None or optimizer is None or len(names) != 2:
            raise NoFixError(f"`{code.short(call)}` hides its arguments; write them out")
        text = code.slice(optimizer.value) if names[1] == name.id else ""
        options = _options(context, code, call)
        return State(call, code.slice(model.value), text, options, is_helper=True)
    return None


def _raw(context: Context, code: Code, value: ir.Expr) -> State | None:
    """Return the state that ``state_dict()`` of a sharded model or its optimizer gives."""
    found = ((fact, state) for fact in sharded_writes(context.program) for state in fact.states)
    for fact, state in found:
        if state.source.path != code.path or state.source.node is not value:
            continue
        target = receiver(value)
        if target is None or not isinstance(value, ir.Call):
            return None
        if state.optimizer is None:
            return State(value, code.slice(target), "", raw=True)
        model = model_name(context.program, fact.trace, state.source, state.owner, state.optimizer)
        if model is None:
            raise NoFixError(
                f"the model of `{code.short(value)}` has no known name here; take the state with "
                "`get_optimizer_state_dict` by hand"
            )
        return State(value, model, code.slice(target), raw=True)
    return None


def _options(context: Context, code: Code, call: ir.Call) -> str:
    """Return the options that a call keeps."""
    given = argument_of(call, -1, "options")
    return "" if given is None else ", ".join(kept_options(context, code, given.value))


def kept_options(context: Context, code: Code, value: ir.Expr) -> list[str]:
    """Return the arguments of `StateDictOptions` that are not about gathering.

    Raises:
        NoFixError: the options are not known.
    """
    meant = last_given(code, value)
    if isinstance(meant, ir.Constant) and meant.value is None:
        return []
    made = isinstance(meant, ir.Call) and context.name(code, meant.func) == STATE_OPTIONS
    if not made or not isinstance(meant, ir.Call) or any(a.keyword is None for a in meant.args):
        raise NoFixError(f"`{code.short(value)}` hides its options; write them out in the call")
    return [code.slice(each) for each in meant.args if each.keyword not in _GATHERING]


def last_given(code: Code, value: ir.Expr) -> ir.Expr:
    """Return what a name stands for, also if its block gives it another value elsewhere."""
    meant = definition(code, value)
    last = latest(code, meant) if isinstance(meant, ir.Name) else None
    return meant if last is None else last.value


def latest(code: Code, use: ir.Expr) -> ir.Assign | None:
    """Return the last statement above a use that surely gives its variable a value."""
    name = dotted(use)
    inner: ir.Node = code.statement(use)
    for above in code.ancestors(inner):
        block = next((b.statements for b in blocks(above) if inner in b.statements), ())
        for each in reversed(block):
            plain = isinstance(each, ir.Assign) and name in map(dotted, each.targets)
            if plain and isinstance(each, ir.Assign) and each.start < inner.start:
                return each
        if isinstance(above, ir.Function):
            break
        inner = above
    return None


def sharded_call(code: Code, state: State, imports: Imports) -> Edit:
    """Return the edit that takes the shards of a state instead."""
    call = state.call
    options = with_options(state.options, imports)
    if state.is_helper:
        others = [code.slice(each) for each in call.args if each.keyword != "options"]
        return code.edit(call.func.end, call.end, f"({', '.join(others)}{options})")
    name = imports.name(HELPERS, f"get_{state.kind}_state_dict")
    given = ", ".join(filter(None, (state.model, state.optimizer)))
    return code.edit(call.start, call.end, f"{name}({given}{options})")


def with_options(options: str, imports: Imports) -> str:
    """Return the argument for options, or nothing if there are none."""
    return f", options={imports.name(HELPERS, 'StateDictOptions')}({options})" if options else ""
