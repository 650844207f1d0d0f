"""Calls that take or load the state of an FSDP1 model, as calls of the state dict helpers."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.fixes.policies import meaning, unused
from fsdplint.fixes.state_options import Config, StateType, state_type
from fsdplint.fixes.wrapping import WIDTH
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.fsdp import (
    FULL_OPTIM_STATE_DICT,
    OPTIM_STATE_DICT,
    SHARDED_OPTIM_STATE_DICT,
    STATE_DICT_TYPE,
)

TAKES = (OPTIM_STATE_DICT, FULL_OPTIM_STATE_DICT, SHARDED_OPTIM_STATE_DICT)
_BY_HAND = "replace it by hand"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The edits of a call.

    Attributes:
        node: what they replace.
        differs: what is different afterwards, "" if nothing is.
        by_helper: a helper replaces the call; if not, what the call is given does.
    """

    node: ir.Node
    edits: tuple[Edit, ...]
    differs: str = ""
    by_helper: bool = True


def of_model(code: Code, call: ir.Call) -> ir.Expr | None:
    """Return the model whose state a call takes or loads by its form, None for another call."""
    if meaning(code, call.func) in TAKES:
        model = argument_of(call, 0, "model")
        return None if model is None else model.value
    method = call.func
    named = isinstance(method, ir.Attribute) and method.attr in ("state_dict", "load_state_dict")
    return method.value if named and isinstance(method, ir.Attribute) else None


def rewrite(code: Code, call: ir.Call, kind: StateType, imports: Imports) -> Rewrite:
    """Replace a call that `of_model` knows by one of the helpers.

    Raises:
        NoFixError: it has arguments that the helpers do not take.
    """
    name = meaning(code, call.func)
    if name in TAKES:
        return _optimizer_taken(code, call, _type_of(code, call, name, kind), imports)
    if isinstance(call.func, ir.Attribute) and call.func.attr == "load_state_dict":
        return _model_loaded(code, call, kind, imports)
    if call.args:
        raise NoFixError(f"`{code.short(call)}` has arguments; {_BY_HAND}")
    assert isinstance(call.func, ir.Attribute)
    get = imports.name(HELPERS, "get_model_state_dict")
    model, inner = _outer(code, call.func.value)
    edit = replaced(code, call, get, [model, *options(imports, kind.taking())])
    return Rewrite(call, (edit,), inner or kind.differs())


def _outer(code: Code, model: ir.Expr) -> tuple[str, str]:
    """Return the text of a model without FSDP1's attribute, and what is different then."""
    if not isinstance(model, ir.Attribute) or model.attr not in WRAPPED:
        return code.slice(model), ""
    owner = code.slice(model.value)
    return owner, "the root's own parameters, which FSDP1 leaves flat in it, are there by name"


def options(imports: Imports, arguments: str) -> list[str]:
    """Return the argument ``options=…``, none for the defaults."""
    if not arguments:
        return []
    return [f"options={imports.name(HELPERS, 'StateDictOptions')}({arguments})"]


def replaced(code: Code, call: ir.Call, function: str, arguments: Sequence[str]) -> Edit:
    """Replace a call, broken into lines as a formatter does if it is too long for one.

    Comments between its arguments come above the new ones.
    """
    text = f"{function}({', '.join(arguments)})"
    line = code.line(call.start)
    before = code.text[code.line_start(call.start) : call.start]
    after = code.line(call.end)[call.end - code.line_start(call.end) :]
    comments = code.comments_in(call.start, call.end)
    if comments or (len(before + text + after) > WIDTH and _has_own_lines(before, after)):
        indent = line[: len(line) - len(line.lstrip())]
        inner = code.newline + indent + code.unit
        short = ", ".join(arguments)
        if len(indent + code.unit + short) > WIDTH:
            short = f",{inner}".join(arguments) + ","
        above = "".join(f"{comment.rstrip()}{inner}" for comment in comments)
        text = f"{function}({inner}{above}{short}{code.newline}{indent})"
    return code.edit(call.start, call.end, text)


def _has_own_lines(before: str, after: str) -> bool:
    """True if a call can be broken without a bracket around it that then would be, too."""
    head = re.fullmatch(r"\s*(?:return |[\w.\[\]'\", ]+ = ?|[\w'\"]+: |\w+=)?", before)
    return head is not None and re.fullmatch(r",?\s*(?:#.*)?", after) is not None


def without_contexts(
    code: Code, block: ir.With, contexts: Container[ir.Node], edits: Sequence[Edit]
) -> list[Edit]:
    """Return ``edits`` inside a block together with those that remove some of its contexts.

    Raises:
        NoFixError: the header or the body shares a line with other code.
    """
    rest = [item for item in block.items if item.value not in contexts]
    if not rest:
        return unwrapped(code, block, edits)
    removed = []
    for index, item in enumerate(block.items):
        if item in rest:
            continue
        if any(other in rest for other in block.items[:index]):
            removed.append(code.edit(block.items[index - 1].end, item.end, ""))
        else:
            removed.append(code.edit(item.start, block.items[index + 1].start, ""))
    return [*removed, *edits]


def unwrapped(code: Code, block: ir.With, edits: Sequence[Edit]) -> list[Edit]:
    """Return ``edits`` inside a block together with those that replace the block by its body.

    Raises:
        NoFixError: the header or the body shares a line with other code.
    """
    extra = code.indentation(block.body[0]).removeprefix(code.indentation(block))
    moved = [_dedented(code, edit, extra) if _inside(code, block, edit) else edit for edit in edits]
    lines = code.unwrapped(block, _comment(code, block))
    return [*moved, *(edit for edit in lines if not any(_covers(each, edit) for each in edits))]


def _comment(code: Code, block: ir.With) -> str:
    """Return the line with the comment that ends a block's header, "" if none does."""
    colon = code.text.index(":", block.items[-1].end)
    rest = code.text[colon + 1 : code.line_end(colon)].strip()
    only = rest.startswith("#") and not code.comments(block.start, colon)
    return f"{code.indentation(block)}{rest}{code.newline}" if only else ""


def _inside(code: Code, block: ir.With, edit: Edit) -> bool:
    return edit.span.path == code.path and block.body[0].start <= edit.span.start <= block.end + 2


def _covers(outer: Edit, inner: Edit) -> bool:
    same = outer.span.path == inner.span.path
    return same and outer.span.start <= inner.span.start and inner.span.end <= outer.span.end


def _dedented(code: Code, edit: Edit, extra: str) -> Edit:
    first, *others = edit.text.split(code.newline)
    if edit.span.start == code.line_start(edit.span.start):
        first = first.removeprefix(extra)
    lines = (first, *(line.removeprefix(extra) for line in others))
    return replace(edit, text=code.newline.join(lines))


def _type_of(code: Code, call: ir.Call, name: str, kind: StateType) -> StateType:
    """Return the type of an optimizer's state; the deprecated methods choose it themselves."""
    if name == SHARDED_OPTIM_STATE_DICT:
        return StateType(full=False)
    if name != FULL_OPTIM_STATE_DICT:
        return kind
    given = argument_of(call, 3, "rank0_only")
    if given is None:
        return StateType(optimizer=Config(rank0_only=True))
    if not isinstance(given.value, ir.Constant):
        raise NoFixError(
            f"the value of `{code.short(given.value)}` is not known here; replace the call by hand"
        )
    return StateType(optimizer=Config(rank0_only=bool(given.value.value)))


def _optimizer_taken(code: Code, call: ir.Call, kind: StateType, imports: Imports) -> Rewrite:
    model, optimizer = argument_of(call, 0, "model"), argument_of(call, 1, "optim")
    group = any(argument.keyword == "group" or argument.star for argument in call.args)
    if model is None or optimizer is None or group:
        raise NoFixError(f"`{code.short(call)}` has arguments that the helpers lack; {_BY_HAND}")
    text = code.slice(optimizer.value)
    state = argument_of(call, 2, "optim_state_dict")
    own = state is None or code.slice(state.value) in ("None", f"{text}.state_dict()")
    if meaning(code, call.func) == OPTIM_STATE_DICT and not own:
        raise NoFixError(
            "the state is not the optimizer's own state now, and the helpers take no other; "
            f"{_BY_HAND}"
        )
    get = imports.name(HELPERS, "get_optimizer_state_dict")
    form = options(imports, kind.taking(optimizer=True))
    edit = replaced(code, call, get, [code.slice(model.value), text, *form])
    return Rewrite(call, (edit,), kind.differs(optimizer=True))


def _model_loaded(code: Code, call: ir.Call, kind: StateType, imports: Imports) -> Rewrite:
    assert isinstance(call.func, ir.Attribute)
    state, strict = argument_of(call, 0, "state_dict"), argument_of(call, 1, "strict")
    if state is None or len(call.args) != (1 if strict is None else 2):
        raise NoFixError(f"`{code.short(call)}` has arguments that the helpers lack; {_BY_HAND}")
    given = code.slice(state.value)
    # The helper replaces the tensors in the dict that it is given.
    if kind.full and _is_used_after(code, call, state.value):
        given = f"dict({given})"
    arguments = [kind.loading()] if kind.full else []
    if strict is not None and code.slice(strict.value) != "True":
        arguments.append(f"strict={code.slice(strict.value)}")
    put = imports.name(HELPERS, "set_model_state_dict")
    form = options(imports, ", ".join(arguments))
    model, inner = _outer(code, call.func.value)
    return Rewrite(call, (replaced(code, call, put, [model, given, *form]),), inner)


def _is_used_after(code: Code, call: ir.Call, state: ir.Expr) -> bool:
    """True if the function mentions a state dict below its load."""
    scope = code.function(call) or code.module
    text = re.escape(code.slice(state))
    if dotted(state) is None and not isinstance(state, ir.Subscript):
        return False
    return re.search(rf"(?<![\w.]){text}(?!\w)", code.text[call.end : scope.end]) is not None


@builder
def gather_by_options(code: Code, choice: ir.Node) -> Fix:
    """Replace ``with FSDP.state_dict_type(…)`` by options in each call that takes a state."""
    statement = code.statement(choice)
    shared = "`state_dict_type` is not alone in a `with` statement; replace it by hand"
    if not isinstance(statement, ir.With) or not isinstance(choice, ir.Call):
        raise NoFixError(shared)
    if len(statement.items) != 1 or statement.items[0].value is not choice:
        raise NoFixError(shared)
    imports = Imports(code, choice)
    kind = state_type(code, choice)
    model = dotted(choice.args[0].value) or ""
    found = [
        rewrite(code, call, kind, imports) for call in state_calls(code, statement.body, model)
    ]
    known = {node for each in found for node in ir.walk(each.node)}
    others = (n for each in statement.body for n in ir.walk(each) if n not in known)
    if not known or any(dotted(node) == model for node in others):
        raise NoFixError(
            f"the block uses `{model}` for more than its state dict; replace the calls by hand"
        )
    edits = [edit for each in found for edit in each.edits]
    edits = [*unwrapped(code, statement, edits), *imports.edits()]
    edits += unused(code, [choice], edits)
    return Fix("take the state with helpers that support FSDP2", Safety.UNSAFE, tuple(edits))


def state_calls(code: Code, body: Sequence[ir.Stmt], model: str) -> Iterator[ir.Call]:
    """Yield the calls in a block that take or load the state of ``model``, a dotted name."""
    for node in (n for each in body for n in ir.walk(each)):
        of = of_model(code, node) if isinstance(node, ir.Call) else None
        if of is not None and dotted(of) == model and isinstance(node, ir.Call):
            yield node


def contexts(code: Code, node: ir.Node) -> Iterator[tuple[ir.With, ir.Call]]:
    """Yield the ``with FSDP.state_dict_type(…)`` around a node in its function, inside out."""
    for each in code.ancestors(node):
        if isinstance(each, ir.Function):
            return
        if isinstance(each, ir.With) and not any(node is i.value for i in each.items):
            yield from ((each, call) for call in choices(code, each))


def choices(code: Code, statement: ir.With) -> Iterator[ir.Call]:
    """Yield the calls of ``FSDP.state_dict_type`` that a ``with`` statement enters."""
    for item in reversed(statement.items):
        call = item.value
        if isinstance(call, ir.Call) and meaning(code, call.func) == STATE_DICT_TYPE:
            yield call
