"""Uses of DDP's own attributes, methods and class, apart from its construction."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.ddp import CLASS, METHODS, PROMISE, SYNC_ATTRIBUTE, ZERO
from fsdplint.knowledge.names import FSDP2_MODULE
from fsdplint.migrate.step import Change, Context, Found, Kept

_SETTER = "set_requires_gradient_sync"
_WORDS = ("fully_shard", "DistributedDataParallel", "DDP", SYNC_ATTRIBUTE, PROMISE, *METHODS)


def uses(context: Context) -> Iterator[Found]:
    """Yield a change for each use that has a counterpart, and what has none."""
    for code in context.codes(*_WORDS):
        for node in ir.walk(code.module):
            try:
                found = _change(context, code, node)
            except NoFixError as reason:
                found = Kept(_span(code, node), f"`{code.short(node)}`", str(reason))
            if found is not None:
                yield found


def _span(code: Code, node: ir.Node) -> Span:
    return code.edit(node.start, node.end, "").span


def _change(context: Context, code: Code, node: ir.Node) -> Found | None:
    if isinstance(node, ir.Assign) and _is_flag(node.targets[0]):
        return _set_sync(code, node)
    if isinstance(node, ir.Conditional) and _is_no_choice(code, node):
        edits = (code.edit(node.start, node.end, code.slice(node.body)),)
        return Change(_span(code, node), "drop the choice between the model and itself", edits)
    if isinstance(node, ir.Attribute) and _is_flag(node):
        parent = code.parent(node)
        if not (isinstance(parent, ir.Assign) and node in parent.targets):
            raise NoFixError(f"FSDP2 has no `{SYNC_ATTRIBUTE}` to read; keep the value by hand")
    if isinstance(node, ir.Call) and ir.last_name(node.func) == PROMISE:
        return _dropped(code, node)
    if isinstance(node, ir.Call) and _is_test(context, code, node):
        return _test(context, code, node)
    if isinstance(node, ir.Parameter) and node.annotation is not None:
        if context.name(code, node.annotation) == CLASS:
            return _annotation(code, node.annotation)
    if isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
        if node.func.attr == "register_comm_hook":
            raise NoFixError(METHODS["register_comm_hook"])
    if isinstance(node, ir.Call) and context.name(code, node.func) in ZERO:
        raise NoFixError(
            "FSDP2 divides optimizer states already; build the inner optimizer by hand"
        )
    return None


def _is_flag(node: ir.Node) -> bool:
    return isinstance(node, ir.Attribute) and node.attr == SYNC_ATTRIBUTE


def _is_no_choice(code: Code, choice: ir.Conditional) -> bool:
    """True if dropping `.module` has left ``model if ddp else model``."""
    same = code.slice(choice.body) == code.slice(choice.orelse)
    return same and not any(isinstance(node, ir.Call) for node in ir.walk(choice))


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
    what = f"turn gradient reduction on and off with `{_SETTER}`"
    return Change(_span(code, assign), what, edits)


def _dropped(code: Code, call: ir.Call) -> Change:
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or len(code.block(statement).statements) == 1:
        raise NoFixError(f"FSDP2 has no `{PROMISE}`; remove the call by hand")
    edit = code.delete_lines(*code.extent(statement))
    return Change(_span(code, call), f"drop `{PROMISE}`: FSDP2 needs no such promise", (edit,))


def _is_test(context: Context, code: Code, call: ir.Call) -> bool:
    if ir.last_name(call.func) != "isinstance" or len(call.args) != 2:
        return False
    return any(context.name(code, node) == CLASS for node in ir.walk(call.args[1].value))


def _test(context: Context, code: Code, call: ir.Call) -> Change:
    """A choice between ``model.module`` and ``model`` becomes ``model``; other tests are FSDP2's."""
    choice = code.parent(call)
    model = code.slice(call.args[0].value)
    if isinstance(choice, ir.Conditional) and choice.test is call:
        if code.slice(choice.body) == f"{model}.module" and code.slice(choice.orelse) == model:
            edits: tuple[Edit, ...] = (code.edit(choice.start, choice.end, model),)
            return Change(_span(code, choice), "drop `.module`: there is no wrapper", edits)
    if isinstance(choice, ir.If) and choice.test is call and not choice.orelse:
        if [code.slice(each) for each in choice.body] == [f"{model} = {model}.module"]:
            if len(code.block(choice).statements) > 1:
                edits = (code.delete_lines(*code.extent(choice)),)
                return Change(_span(code, choice), "drop `.module`: there is no wrapper", edits)
    imports = Imports(code, call)
    given = call.args[1].value
    name = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    named = next(node for node in ir.walk(given) if context.name(code, node) == CLASS)
    edits = (code.edit(named.start, named.end, name),)
    return Change(_span(code, call), f"test for `{name}`", edits, (imports,))


def _annotation(code: Code, annotation: ir.Expr) -> Change:
    imports = Imports(code, annotation)
    name = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    edit = code.edit(annotation.start, annotation.end, name)
    return Change(_span(code, annotation), f"annotate it as `{name}`", (edit,), (imports,))
