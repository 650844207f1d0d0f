"""Uses of DDP's own attributes, methods and class, apart from its construction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of, without
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.ddp import CLASS, CONSOLIDATES, METHODS, PROMISE, SYNC_ATTRIBUTE, ZERO
from fsdplint.knowledge.names import FSDP2_MODULE
from fsdplint.migrate.modes import wraps_by_ddp
from fsdplint.migrate.no_syncs import EACH, REMAIN, may_remain
from fsdplint.migrate.step import Change, Context, Found, attempt

_SETTER = "set_requires_gradient_sync"
_LATE = (
    "DDP read this in the next forward, so that it averaged the gradients of another micro-batch"
)
# Calls that have nothing to do any more, and why.
_NEEDLESS = {
    PROMISE: "FSDP2 needs no such promise",
    CONSOLIDATES: "all ranks gather the state where it is taken",
}
_WORDS = (
    "fully_shard",
    "hasattr",
    "DistributedDataParallel",
    "DDP",
    SYNC_ATTRIBUTE,
    PROMISE,
    CONSOLIDATES,
    *METHODS,
)


def uses(context: Context) -> Iterator[Found]:
    """Yield a change for each use that has a counterpart, and what has none."""
    for code in context.codes(*_WORDS):
        for node in ir.walk(code.module):
            yield from attempt(code, node, partial(_change, context, code, node))


def _change(context: Context, code: Code, node: ir.Node) -> Found | None:
    match node:
        case ir.Assign() if _is_flag(node.targets[0]):
            return _set_sync(code, node)
        case ir.Attribute() if _is_flag(node):
            _check_written(code, node)
        case ir.Conditional() if _is_no_choice(code, node):
            edit = code.edit(node.start, node.end, code.slice(node.body))
            what = "drop the choice between the model and itself"
            return Change(code.span(node), what, (edit,))
        case ir.Conditional() if _asks_for_wrapper(code, node) and _is_sharded(context):
            enclosed = (
                code.text[node.start - 1] == "(" and code.text[node.end : node.end + 1] == ")"
            )
            edit = code.edit(node.start - enclosed, node.end + enclosed, code.slice(node.orelse))
            return Change(code.span(node), "drop `.module`: there is no wrapper", (edit,))
        case ir.Parameter(annotation=annotation) if annotation is not None:
            if context.name(code, annotation) == CLASS:
                return _annotation(code, annotation)
        case ir.Call():
            return _call(context, code, node)
    return None


def _is_sharded(context: Context) -> bool:
    """True if the model is sharded by now instead of wrapped by any DDP."""
    return any(context.codes("fully_shard(")) and not wraps_by_ddp(context)


def _call(context: Context, code: Code, call: ir.Call) -> Found | None:
    name = ir.last_name(call.func)
    if name in _NEEDLESS:
        return _dropped(code, call, name)
    if _is_test(context, code, call):
        return _test(context, code, call)
    if name == "register_comm_hook":
        raise NoFixError(METHODS[name])
    if context.name(code, call.func) in ZERO:
        return _inner_optimizer(code, call)
    return None


def _inner_optimizer(code: Code, call: ir.Call) -> Change:
    """Build the optimizer itself: FSDP2 divides its states between ranks already."""
    own = {"optimizer_class", "process_group", "parameters_as_bucket_view", "overlap_with_ddp"}
    given = argument_of(call, 1, "optimizer_class")
    if given is None or any(code.comments(each.start, each.end) for each in call.args):
        raise NoFixError("its optimizer does not show; build that without this class by hand")
    kept = [each for each in call.args if each.keyword not in own and each is not given]
    name = code.edit(call.func.start, call.func.end, code.slice(given.value))
    edits = (name, *without(code, call.args, kept))
    what = f"build `{code.slice(given.value)}` itself: FSDP2 divides its state between ranks"
    return Change(code.span(call), what, edits)


def _check_written(code: Code, flag: ir.Attribute) -> None:
    parent = code.parent(flag)
    if not (isinstance(parent, ir.Assign) and flag in parent.targets):
        raise NoFixError(f"FSDP2 has no `{SYNC_ATTRIBUTE}` to read; keep the value by hand")


def _is_flag(node: ir.Node) -> bool:
    return isinstance(node, ir.Attribute) and node.attr == SYNC_ATTRIBUTE


def _is_no_choice(code: Code, choice: ir.Conditional) -> bool:
    """True if dropping `.module` has left ``model if ddp else model``, or states of these."""
    same = code.slice(choice.body) == code.slice(choice.orelse)
    return same and not any(isinstance(node, ir.Call) for node in ir.walk(choice.test))


def _asks_for_wrapper(code: Code, choice: ir.Conditional) -> bool:
    """True for ``model.module if hasattr(model, "module") else model``."""
    model = code.slice(choice.orelse)
    test = f'hasattr({model}, "module")'
    same = code.slice(choice.test).replace("'", '"') == test
    return same and code.slice(choice.body) in (model, f"{model}.module")


def _set_sync(code: Code, assign: ir.Assign) -> Change:
    """``model.require_backward_grad_sync = last`` to ``model.set_requires_gradient_sync(last)``."""
    target = assign.targets[0]
    assert isinstance(target, ir.Attribute)
    if len(assign.targets) > 1:
        raise NoFixError(f"`{code.short(assign)}` assigns several targets; split it by hand")
    edits = (
        code.edit(target.value.end, assign.value.start, f".{_SETTER}("),
        code.edit(assign.value.end, assign.end, ")"),
    )
    if may_remain(code, assign):
        edits = (edits[0], code.edit(assign.value.start, assign.end, "True)"))
        return Change(code.span(assign), EACH, edits, differs=REMAIN)
    what = f"turn gradient reduction on and off with `{_SETTER}`"
    statement, forward = _after_forward(code, assign, code.slice(target.value))
    if forward is None:
        return Change(code.span(assign), what, edits)
    start, end = code.extent(statement)
    moved = code.insert_lines(code.extent(forward)[0], code.text[start:end])
    corrects = (moved, code.delete_lines(start, end))
    return Change(code.span(assign), what, edits, differs=_LATE, corrects=corrects)


def _after_forward(code: Code, assign: ir.Assign, model: str) -> tuple[ir.Stmt, ir.Stmt | None]:
    """Return the statement in the loop that sets the flag, and the forward before it, if any."""
    statement: ir.Stmt = assign
    around = code.parent(statement)
    while isinstance(around, ir.If) and len(code.block(statement).statements) == 1:
        statement, around = around, code.parent(around)
    above = [each for each in code.block(statement).statements if each.start < statement.start]
    calls = ((s, node) for s in above for node in ir.walk(s) if isinstance(node, ir.Call))
    return statement, next((s for s, call in calls if code.slice(call.func) == model), None)


def _dropped(code: Code, call: ir.Call, name: str) -> Change:
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or len(code.block(statement).statements) == 1:
        raise NoFixError(f"FSDP2 has no `{name}`; remove the call by hand")
    edit = code.delete_lines(*code.extent(statement))
    return Change(code.span(call), f"drop `{name}`: {_NEEDLESS[name]}", (edit,))


def _is_test(context: Context, code: Code, call: ir.Call) -> bool:
    if ir.last_name(call.func) != "isinstance" or len(call.args) != 2:
        return False
    return any(context.name(code, node) == CLASS for node in ir.walk(call.args[1].value))


def _test(context: Context, code: Code, call: ir.Call) -> Change:
    """Replace a choice between ``model.module`` and ``model`` by ``model``, or the class tested."""
    choice, model = code.parent(call), code.slice(call.args[0].value)
    inner = f"{model}.module"
    dropped: Edit | None = None
    if isinstance(choice, ir.Conditional) and choice.test is call:
        arms = code.slice(choice.body), code.slice(choice.orelse)
        if arms == (inner, model):
            dropped = code.edit(choice.start, choice.end, model)
    elif isinstance(choice, ir.If) and choice.test is call and not choice.orelse:
        rebinds = [code.slice(each) for each in choice.body] == [f"{model} = {inner}"]
        if rebinds and len(code.block(choice).statements) > 1:
            dropped = code.delete_lines(*code.extent(choice))
    if dropped is not None:
        return Change(code.span(choice), "drop `.module`: there is no wrapper", (dropped,))
    imports = Imports(code, call)
    name = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    given = call.args[1].value
    named = next(node for node in ir.walk(given) if context.name(code, node) == CLASS)
    edit = code.edit(named.start, named.end, name)
    return Change(code.span(call), f"test for `{name}`", (edit,), (imports,))


def _annotation(code: Code, annotation: ir.Expr) -> Change:
    imports = Imports(code, annotation)
    name = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    edit = code.edit(annotation.start, annotation.end, name)
    return Change(code.span(annotation), f"annotate it as `{name}`", (edit,), (imports,))
