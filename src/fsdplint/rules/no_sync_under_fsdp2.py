"""Calls of FSDP1's ``no_sync`` on FSDP2 modules, which have ``set_requires_gradient_sync``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_sync import missing_no_syncs
from fsdplint.engine.facts.sharding import as_unit
from fsdplint.engine.interpreter.events import Shard, Sharding
from fsdplint.engine.interpreter.site import Site
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
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call)}` raises AttributeError: FSDP2 modules have no "
            f"`no_sync`, and {_known(program, fact.shard, site)}",
            "FSDP2 has no such method",
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


def _known(program: Program, shard: Sharding, site: Site) -> str:
    """Return what shows that the model is an FSDP2 module."""
    if isinstance(shard, Shard):
        call = program.text(shard.site.path, shard.call.func)
        return f"`{call}` shards this model {program.where(shard.site, site)}"
    return f"this model is {as_unit(program, shard, site)}"


_SETTER = "set_requires_gradient_sync"
_BY_HAND = f"call `{_SETTER}` by hand"
_COLON = re.compile(r"[\s),\\]*:")
_COMMA = re.compile(r"[\s\\]*,[\s\\]*")


@dataclass(frozen=True, slots=True)
class _Context:
    """The code that makes the context manager.

    Attributes:
        node: the whole expression, including the alternative if it is conditional.
        flag: the text of the condition under which gradients are reduced.
        test: the condition that selects the context, if there is one.
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
    """Replace ``call``, which is ``model.no_sync()`` or ``model.no_sync`` itself.

    It may be an item of a with statement, or a variable that one with statement uses. It may be
    one arm of a conditional expression whose other arm does nothing.
    """
    context = _context(code, call)
    edits = list(_edits(code, context))
    if context.other is not None:
        edits += orphans(code, code.slice(context.other).split(".")[0], edits)
    title = f"turn gradient reduction off and on with `{_SETTER}`"
    return Fix(title, Safety.UNSAFE, tuple(edits))


def selects(code: Code, call: ir.Call | ir.Attribute) -> ir.Expr | None:
    """Return the condition that selects ``call`` rather than what does nothing, if there is one."""
    try:
        return _context(code, call).test
    except NoFixError:
        return None


def _context(code: Code, call: ir.Call | ir.Attribute) -> _Context:
    method = call.func if isinstance(call, ir.Call) else call
    if not isinstance(method, ir.Attribute):
        raise NoFixError(f"`{code.short(call)}` does not name the model; {_BY_HAND}")
    if any(isinstance(n, (ir.Call, ir.NamedExpr, ir.Yield)) for n in ir.walk(method.value)):
        raise NoFixError(
            f"`{code.short(method.value)}` would be evaluated more than once; {_BY_HAND}"
        )
    if isinstance(call, ir.Call) and call.args:
        raise NoFixError(f"`{code.short(call)}` takes arguments, unlike FSDP's; {_BY_HAND}")
    choice = code.parent(call)
    if isinstance(choice, ir.Conditional) and choice.test is not call:
        other = choice.orelse if choice.body is call else choice.body
        return _chosen(code, _Context(method.value, choice), call, choice.test, other)
    return _by_if(code, _Context(method.value, call), call)


def _chosen(
    code: Code, context: _Context, call: ir.Expr, test: ir.Expr, other: ir.Expr
) -> _Context:
    """Return ``context`` if ``test`` decides between ``call`` and ``other``."""
    called = isinstance(call, ir.Call)
    function = other.func if called and isinstance(other, ir.Call) else other
    name = qualified(code, function)
    if called != isinstance(other, ir.Call) or name != "contextlib.nullcontext":
        raise NoFixError(f"`{code.short(other)}` may not be a no-op; {_BY_HAND}")
    flag = negated(code, test) if call.start < other.start else code.slice(test)
    return replace(context, flag=flag, test=test, other=function)


def _by_if(code: Code, context: _Context, call: ir.Call | ir.Attribute) -> _Context:
    """Return ``context`` with the if statement that assigns it or an alternative."""
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
        raise NoFixError(f"`{code.short(context.node)}` is passed to another call; {_BY_HAND}")
    else:
        raise NoFixError(f"`{code.short(context.node)}` is not in a `with` statement; {_BY_HAND}")


def _calls(code: Code, context: _Context) -> tuple[str, str]:
    setter = f"{code.slice(context.model)}.{_SETTER}"
    return f"{setter}({context.flag})", f"{setter}(True)"


# With statements


def _in_with(code: Code, context: _Context, item: ir.WithItem) -> Iterator[Edit]:
    with_ = code.parent(item)
    assert isinstance(with_, ir.With)
    _check_with(code, context, item, with_)
    if context.test is None and not _reduced_elsewhere(code, with_):
        raise NoFixError(f"no backward outside the `with` would reduce the gradients; {_BY_HAND}")
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
    """True if a micro-batch may run without the context, so that its backward reduces.

    False if every backward of the function is in the with statement, outside of any branch.
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
        raise NoFixError(f"`{code.short(with_)}` is asynchronous; {_BY_HAND}")
    if item.target is not None:
        raise NoFixError(f"`{code.short(item.target)}` keeps the context; {_BY_HAND}")
    if code.comments(with_.start, item.end):
        raise NoFixError(f"a comment is in the header of the `with` statement; {_BY_HAND}")
    model = names_in(context.model).reads
    rebound = clash(model, written_between(code, with_, with_.start, with_.end))
    if rebound is not None:
        raise NoFixError(f"`{rebound}` is assigned in the `with` statement; {_BY_HAND}")


def _header(code: Code, with_: ir.With, item: ir.WithItem, off: str) -> Edit:
    """Replace the header and keep its comment; a body on the same line moves to a new line."""
    colon = _COLON.match(code.text, item.end)
    if colon is None:
        raise NoFixError(f"the header of `{code.short(with_)}` cannot be rewritten; {_BY_HAND}")
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
            f"`{code.short(item)}` cannot be split from the items next to it; {_BY_HAND}"
        )
    return code.edit(start, end, "")


# Variables


def _in_variable(code: Code, context: _Context, assign: ir.Assign) -> Iterator[Edit]:
    target = assign.targets[0]
    if len(assign.targets) != 1 or not isinstance(target, ir.Name):
        raise NoFixError(
            f"`{code.short(assign)}` may share the context with other code; {_BY_HAND}"
        )
    statement = context.choice or assign
    use = _only_use(code, target, statement)
    item = code.parent(use)
    with_ = code.parent(item)
    if not isinstance(item, ir.WithItem) or not isinstance(with_, ir.With):
        raise NoFixError(f"`{target.id}` is not used by a `with` statement directly; {_BY_HAND}")
    if code.parent(statement) not in code.ancestors(with_) or with_.start < statement.end:
        raise NoFixError(
            f"`{code.short(with_)}` may run without `{code.short(assign)}`; {_BY_HAND}"
        )
    _check_unchanged(code, context, statement, with_)
    yield code.delete_lines(*code.extent(statement))
    yield from _in_with(code, context, item)


def _only_use(code: Code, target: ir.Name, statement: ir.Stmt) -> ir.Node:
    """Return the only use of ``target`` outside ``statement``, with its call if it is called."""
    scope = code.function(target) or code.module
    names = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == target.id]
    uses = [n for n in names if not statement.start <= n.start < statement.end]
    if len(uses) != 1:
        raise NoFixError(f"`{target.id}` is not used exactly once; {_BY_HAND}")
    parent = code.parent(uses[0])
    return parent if isinstance(parent, ir.Call) and not parent.args else uses[0]


def _check_unchanged(code: Code, context: _Context, statement: ir.Stmt, with_: ir.With) -> None:
    """Raise ``NoFixError`` if the condition may differ at the with statement."""
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
        raise NoFixError(f"`{changed}` changes before the `with` statement; {_BY_HAND}")
