"""FSDP1's ``no_sync`` to FSDP2's ``set_requires_gradient_sync``, set back when the body is left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_sync import missing_no_syncs
from fsdplint.engine.facts.sharding import as_state
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.conditions import negated
from fsdplint.fixes.imports import orphans, qualified
from fsdplint.fixes.names import clash, names_in, written_between
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD303",
    summary="`no_sync` is called on an FSDP2 module, which does not have it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="accumulation",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in missing_no_syncs(program):
        site, call = fact.call.site, fact.call.site.node
        assert isinstance(call, ir.Call)
        unit = as_state(program, fact.shard, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call)}` raises AttributeError: FSDP2 models have no "
            f"`no_sync`, and the model is {unit}",
            "no such method under FSDP2",
            (
                program.evidence(fact.shard.site, "becomes an FSDP2 module here"),
                *program.conditions(fact.shard.site),
            ),
            partial(
                sync_last_micro_batch,
                Code.of(program.tree(site.path)),
                call,
            ),
        )


_SETTER = "set_requires_gradient_sync"
_COLON = re.compile(r"[\s),\\]*:")
_COMMA = re.compile(r"[\s\\]*,[\s\\]*")


@dataclass(frozen=True, slots=True)
class _Context:
    """What stands for the context manager in the text.

    Attributes:
        node: the whole expression, with the alternative where it is a conditional one.
        flag: the text of whether gradients are to be reduced.
        test: the condition that decides, if there is one.
        other: the function that makes the alternative, which does nothing.
        choice: the if statement that assigns one or the other to a variable.
    """

    model: ir.Expr
    node: ir.Node
    flag: str = "False"
    test: ir.Expr | None = None
    other: ir.Expr | None = None
    choice: ir.If | None = None


@builder
def sync_last_micro_batch(code: Code, call: ir.Call | ir.Attribute) -> Fix:
    """Replaces the use of ``call``, which is ``model.no_sync()`` or ``model.no_sync`` itself.

    It may be an item of a with statement, alone or as one arm of a conditional expression whose
    other arm does nothing, or be assigned to a variable used in one with statement.
    """
    context = _context(code, call)
    edits = list(_edits(code, context))
    if context.other is not None:
        edits += orphans(code, code.slice(context.other).split(".")[0], edits)
    title = f"turn gradient reduction off and on with `{_SETTER}`"
    return Fix(title, Safety.UNSAFE, tuple(edits))


def _context(code: Code, call: ir.Call | ir.Attribute) -> _Context:
    method = call.func if isinstance(call, ir.Call) else call
    if not isinstance(method, ir.Attribute):
        raise NoFixError(
            f"`{code.short(call)}` does not name the model; call "
            "`set_requires_gradient_sync` on it by hand"
        )
    if any(isinstance(n, (ir.Call, ir.NamedExpr, ir.Yield)) for n in ir.walk(method.value)):
        raise NoFixError(f"`{code.short(method.value)}` cannot be evaluated more than once")
    if isinstance(call, ir.Call) and call.args:
        raise NoFixError(f"`{code.short(call)}` is not a method of a sharded module")
    choice = code.parent(call)
    if isinstance(choice, ir.Conditional) and choice.test is not call:
        other = choice.orelse if choice.body is call else choice.body
        return _chosen(code, _Context(method.value, choice), call, choice.test, other)
    return _by_if(code, _Context(method.value, call), call)


def _chosen(
    code: Code, context: _Context, call: ir.Expr, test: ir.Expr, other: ir.Expr
) -> _Context:
    """``context`` where ``test`` decides between ``call``, if it comes first, and ``other``."""
    called = isinstance(call, ir.Call)
    function = other.func if called and isinstance(other, ir.Call) else other
    name = qualified(code, function)
    if called != isinstance(other, ir.Call) or name != "contextlib.nullcontext":
        raise NoFixError(f"`{code.short(other)}` may do something else")
    flag = negated(code, test) if call.start < other.start else code.slice(test)
    return replace(context, flag=flag, test=test, other=function)


def _by_if(code: Code, context: _Context, call: ir.Call | ir.Attribute) -> _Context:
    """``context`` with the if statement that assigns it in one arm and another in the other."""
    assign = code.parent(call)
    choice = code.parent(assign) if isinstance(assign, ir.Assign) else None
    if not isinstance(choice, ir.If) or len(choice.body) != 1 or len(choice.orelse) != 1:
        return context
    other = choice.orelse[0] if choice.body[0] is assign else choice.body[0]
    if not isinstance(other, ir.Assign) or _targets(code, other) != _targets(code, assign):
        return context
    return replace(_chosen(code, context, call, choice.test, other.value), choice=choice)


def _targets(code: Code, assign: ir.Node) -> list[str]:
    return list(map(code.slice, assign.targets)) if isinstance(assign, ir.Assign) else []


def _edits(code: Code, context: _Context) -> Iterator[Edit]:
    parent = code.parent(context.node)
    if isinstance(parent, ir.WithItem) and isinstance(context.node, (ir.Call, ir.Conditional)):
        yield from _in_with(code, context, parent)
    elif isinstance(parent, ir.Assign):
        yield from _in_variable(code, context, parent)
    elif isinstance(parent, ir.Argument):
        raise NoFixError(
            f"`{code.short(context.node)}` is passed to unknown code; call "
            "`set_requires_gradient_sync` there by hand"
        )
    else:
        raise NoFixError(
            f"`{code.short(context.node)}` is not entered where it is created; "
            "call `set_requires_gradient_sync` by hand"
        )


def _calls(code: Code, context: _Context) -> tuple[str, str]:
    setter = f"{code.slice(context.model)}.{_SETTER}"
    return f"{setter}({context.flag})", f"{setter}(True)"


# With statements


def _in_with(code: Code, context: _Context, item: ir.WithItem) -> Iterator[Edit]:
    with_ = code.parent(item)
    assert isinstance(with_, ir.With)
    _check_with(code, context, item, with_)
    if context.test is None and not _reduced_elsewhere(code, with_):
        raise NoFixError("no backward outside the context would reduce the gradients")
    indent, newline = code.indentation(with_), code.newline
    off, on = _calls(code, context)
    if len(with_.items) == 1:
        yield _header(code, with_, item, off)
    else:
        start = f"{off}{newline}{indent}try:{newline}{indent}{code.unit}"
        yield code.edit(with_.start, with_.start, start)
        removed = _without_item(code, with_, item)
        yield removed
        for at in code.code_lines(code.line_end(with_.start), code.after(with_)):
            if not removed.span.start < at < removed.span.end:
                yield code.edit(at, at, code.unit)
    final = f"{indent}finally:{newline}{indent}{code.unit}{on}{newline}"
    yield code.insert_lines(code.after(with_), final)


def _reduced_elsewhere(code: Code, with_: ir.With) -> bool:
    """Whether a micro-batch may run without the context, so that its backward reduces.

    Not if every backward of the function is in the with statement, and that in no branch.
    """
    scope = code.function(with_) or code.module
    for node in code.ancestors(with_):
        if node is scope:
            break
        if isinstance(node, ir.If):
            return True
    inside = set(ir.walk(with_))
    calls = [node for node in ir.walk(scope) if isinstance(node, ir.Call)]
    within = {_callee(call) for call in calls if call in inside}
    without = {_callee(call) for call in calls if call not in inside}
    return "backward" not in within or "backward" in without


def _callee(call: ir.Call) -> str:
    function = call.func
    if isinstance(function, ir.Attribute):
        return function.attr
    return function.id if isinstance(function, ir.Name) else ""


def _check_with(code: Code, context: _Context, item: ir.WithItem, with_: ir.With) -> None:
    if code.text.startswith("async", with_.start):
        raise NoFixError(f"`{code.short(with_)}` is asynchronous")
    if item.target is not None:
        raise NoFixError(f"`{code.short(item.target)}` is bound to the context")
    if code.comments(with_.start, item.end):
        raise NoFixError("there is a comment in the head of the with statement")
    model = names_in(context.model).reads
    rebound = clash(model, written_between(code, with_, with_.start, with_.end))
    if rebound is not None:
        raise NoFixError(f"`{rebound}` is assigned in the with statement")


def _header(code: Code, with_: ir.With, item: ir.WithItem, off: str) -> Edit:
    """Replaces the head; its comment stays on it, a body on the same line gets one of its own."""
    colon = _COLON.match(code.text, item.end)
    if colon is None:
        raise NoFixError(f"`{code.short(with_)}` has a head that cannot be read")
    body, indent = with_.body[0], code.newline + code.indentation(with_)
    if code.line_start(body.start) == code.line_start(colon.end() - 1):
        return code.edit(with_.start, body.start, f"{off}{indent}try:{indent}{code.unit}")
    end = code.line_start(colon.end()) + len(code.line(colon.end()))
    comment = code.text[colon.end() : end]
    return code.edit(with_.start, end, f"{off}{comment}{indent}try:")


def _without_item(code: Code, with_: ir.With, item: ir.WithItem) -> Edit:
    index = with_.items.index(item)
    if index + 1 < len(with_.items):
        start, end = item.start, with_.items[index + 1].start
        between = code.text[item.end : end]
    else:
        before = with_.items[index - 1]
        start, end = before.target.end if before.target else before.end, item.end
        between = code.text[start : item.start]
    if not _COMMA.fullmatch(between):
        raise NoFixError(
            f"`{code.short(item)}` shares the with statement with items that cannot be separated"
        )
    return code.edit(start, end, "")


# Variables


def _in_variable(code: Code, context: _Context, assign: ir.Assign) -> Iterator[Edit]:
    target = assign.targets[0]
    if len(assign.targets) != 1 or not isinstance(target, ir.Name):
        raise NoFixError(f"`{code.short(assign)}` keeps the context where it may be used again")
    statement = context.choice or assign
    use = _only_use(code, target, statement)
    item = code.parent(use)
    with_ = code.parent(item)
    if not isinstance(item, ir.WithItem) or not isinstance(with_, ir.With):
        raise NoFixError(f"`{target.id}` is also used outside the with statement")
    if code.parent(statement) not in code.ancestors(with_) or with_.start < statement.end:
        raise NoFixError(f"`{code.short(with_)}` may be reached without `{code.short(assign)}`")
    _check_unchanged(code, context, statement, with_)
    yield code.delete_lines(*code.extent(statement))
    yield from _in_with(code, context, item)


def _only_use(code: Code, target: ir.Name, statement: ir.Stmt) -> ir.Node:
    """The one place outside ``statement`` that reads ``target``, called if it is a function."""
    scope = code.function(target) or code.module
    names = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == target.id]
    uses = [n for n in names if not statement.start <= n.start < statement.end]
    if len(uses) != 1:
        raise NoFixError(f"`{target.id}` is not used in exactly one with statement")
    parent = code.parent(uses[0])
    return parent if isinstance(parent, ir.Call) and not parent.args else uses[0]


def _check_unchanged(code: Code, context: _Context, statement: ir.Stmt, with_: ir.With) -> None:
    """Raises ``NoFixError`` if the condition could come out otherwise at the with statement."""
    end = with_.start
    for ancestor in code.ancestors(with_):
        if ancestor is code.parent(statement):
            break
        if isinstance(ancestor, (ir.For, ir.While)):
            end = ancestor.end
    read = names_in(context.model).reads
    if context.test is not None:
        read |= names_in(context.test).reads
    changed = clash(read, written_between(code, with_, statement.end, end))
    if changed is not None:
        raise NoFixError(f"`{changed}` changes before the context is entered")
