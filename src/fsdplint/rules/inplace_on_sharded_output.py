"""Views that FSDP2 units return and later code changes in place, which drops the unit's hook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode, last_called
from fsdplint.engine.facts.loops import source_of
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Condition,
    Const,
    FunctionValue,
    Object,
    Taint,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.tensors import (
    CHANGES_IN_PLACE,
    CHANGES_NOTHING,
    GIVES_VIEW,
    MAKES_NEW,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD311",
    summary="an in-place change of a sharded module's output view drops its hook",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class ChangedView:
    """A ``change`` of the view that ``returned`` makes and ``call`` returns.

    Attributes:
        alone: true if the unit is the whole model, so no other hook does its work.
    """

    call: Site
    change: Site
    returned: Site
    shard: Shard
    alone: bool


def changed_views(program: Program) -> Iterator[ChangedView]:
    """Yield in-place changes of views that units return, in forwards with a later backward."""
    for trace in program.traces:
        shards = [s for s in trace.of(Shard) if s.generation is Generation.FSDP2]
        last = max((b.time for b in trace.calls("backward")), default=0)
        forwards = trace.calls("forward") if shards and last else []
        if trace.calls("set_reshard_after_forward"):
            continue
        units = {shard.module for shard in shards}
        holding = {above for unit in units for above in unit.ancestors()}
        for shard in shards:
            around = [above for above in shard.module.ancestors() if above in units]
            called = [c for c in forwards if shard.time < c.time < last]
            called = [c for c in called if c.receiver in (around or [shard.module])]
            sites: Iterable[Site] = (c.site for c in called)
            if called and around:
                sites = _inner_calls(program, shard.module) if _reshards(shard) else ()
            elif shard.module in holding:
                continue
            yield from _facts(program, shard, sites, not around)


def _facts(
    program: Program, shard: Shard, calls: Iterable[Site], alone: bool
) -> Iterator[ChangedView]:
    returned = _view(program, shard.module)
    for call in calls if returned is not None else ():
        change = _change(program, call)
        if change is not None and returned is not None and program.together(call, shard.site):
            yield ChangedView(call, change, returned, shard, alone)


def _reshards(shard: Shard) -> bool:
    """True if the forward of an inner unit surely reshards it.

    If a condition on the unit's index decides, some units reshard and some do not.
    """
    given = shard.keywords.get("reshard_after_forward", Const(None))
    if isinstance(given, Condition):
        compared = given.operands[0] if given.op == "not" else given
        told_apart = isinstance(compared, Condition) and compared.op in ("==", ">")
        return told_apart and bool(given.taint & Taint.ELEMENT)
    return isinstance(given, Const) and given.value in (None, True)


def _inner_calls(program: Program, module: Object) -> Iterator[Site]:
    """Yield the calls of a unit in the forward of the module that holds it."""
    held = module.parent if module.step.startswith("[") else module
    owners = () if held is None else held.ancestors()
    forward = next(filter(None, map(_forward, owners)), None)
    if held is None or forward is None:
        return
    attribute, path = held.step.removeprefix("."), forward.scope.unit.path
    tree, names = program.tree(path), {attribute} if held is module else set()
    for node in tree.nodes_of(forward.function):
        if isinstance(node, ir.For) and held is not module:
            bound = {each.id for each in ir.walk(node.target) if isinstance(each, ir.Name)}
            names |= {name for name in bound if _is_own(source_of(tree, node, name), attribute)}
    for node in tree.nodes_of(forward.function):
        called = tree.meaning(node.func) if isinstance(node, ir.Call) else node
        if last_called(called) in names and isinstance(called, (ir.Name, ir.Attribute)):
            own = isinstance(called, ir.Name) or _of_self(called)
            if own and isinstance(called, ir.Attribute) is (held is module):
                yield Site(path, node)


def _is_own(node: ir.Expr | None, attribute: str) -> bool:
    """True if it is ``self.attribute``, or an attribute below it."""
    return isinstance(node, ir.Attribute) and node.attr == attribute and _of_self(node)


def _of_self(node: ir.Expr) -> bool:
    while isinstance(node, ir.Attribute):
        node = node.value
    return _is_one_of(node, {"self"})


def _forward(module: Object) -> FunctionValue | None:
    if not isinstance(module.cls, ClassValue) or module.cls.opaque():
        return None
    found = module.cls.lookup("forward")
    return found if isinstance(found, FunctionValue) else None


def _view(program: Program, module: Object) -> Site | None:
    """Return what makes a view in the module's ``forward``, if every return gives a view."""
    forward = _forward(module)
    if forward is None:
        return None
    tree = program.tree(forward.scope.unit.path)
    returns = [n for n in tree.nodes_of(forward.function) if isinstance(n, ir.Return)]
    values = [_source(tree, forward.function, each) for each in returns]
    if not values or not all(value is not None and _is_view(value) for value in values):
        return None
    assert values[0] is not None
    return Site(forward.scope.unit.path, values[0])


def _source(tree: Tree, function: ir.Function, returned: ir.Return) -> ir.Expr | None:
    """Return what is returned, or what was last assigned to the returned name."""
    value, body = returned.value, list(function.body)
    if not isinstance(value, ir.Name) or returned not in body:
        return value
    for before in reversed(body[: body.index(returned)]):
        if not isinstance(before, ir.Assign) or not isinstance(before.targets[0], ir.Name):
            break
        if _is_one_of(before.targets[0], {value.id}):
            return tree.meaning(before.value)
    return tree.meaning(value)


def _is_view(value: ir.Expr) -> bool:
    return (
        isinstance(value, ir.Call)
        and isinstance(value.func, ir.Attribute)
        and value.func.attr in GIVES_VIEW
    )


# What is done with it


def _change(program: Program, site: Site) -> Site | None:
    """Return the first use of a call's result, if it is an in-place change."""
    tree = program.tree(site.path)
    given = _given_name(tree, site.node)
    if given is None or gradient_mode(program, site) in NO_GRADIENTS:
        return None
    found = _written(tree, *given)
    changed = None if found is None else Site(site.path, found, site.calls, site.guards)
    if changed is None or gradient_mode(program, changed) in NO_GRADIENTS:
        return None
    return changed


def _given_name(tree: Tree, value: ir.Node) -> tuple[ir.Stmt, str] | None:
    """Return the statement that assigns ``value`` to a name, and that name."""
    holder = tree.parent(value)
    statement = tree.parent(holder) if isinstance(holder, ir.Collection) else holder
    if not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        return None
    target: ir.Expr = statement.targets[0]
    if isinstance(holder, ir.Collection):
        alike = isinstance(target, ir.Collection) and len(target.elements) == len(holder.elements)
        if statement.value is not holder or not alike or not isinstance(target, ir.Collection):
            return None
        target = target.elements[[each is value for each in holder.elements].index(True)]
    return (statement, target.id) if isinstance(target, ir.Name) else None


def _written(tree: Tree, statement: ir.Stmt, name: str) -> ir.Node | None:
    """Return the first statement after ``statement`` that writes to ``name``."""
    names = {name}
    for node in _following(tree, statement):
        if isinstance(node, ir.AugAssign) and _is_one_of(node.target, names):
            return node
        if isinstance(node, ir.Expression) and _changes(node.value, names):
            return node.value
        if isinstance(node, ir.Assign):
            if any(
                isinstance(t, ir.Subscript) and _is_one_of(t.value, names) for t in node.targets
            ):
                return node
            bound = {n.id for t in node.targets for n in ir.walk(t) if isinstance(n, ir.Name)}
            names = names | bound if _is_one_of(node.value, names) else names - bound
        elif not names or isinstance(node, (ir.If, ir.For, ir.While, ir.Case, ir.Return)):
            return None
    return None


def _following(tree: Tree, statement: ir.Stmt) -> Iterator[ir.Stmt]:
    """Yield the statements that run after one, through with and try statements."""
    while True:
        block = tree.block(statement)
        for node in block.statements[block.statements.index(statement) + 1 :]:
            yield from _straight(node)
        if not isinstance(block.owner, (ir.With, ir.Try)):
            return
        statement = block.owner


def _straight(node: ir.Stmt) -> Iterator[ir.Stmt]:
    if not isinstance(node, (ir.With, ir.Try)):
        yield node
        return
    for inner in node.body:
        yield from _straight(inner)


def _is_one_of(node: ir.Expr, names: set[str]) -> bool:
    return isinstance(node, ir.Name) and node.id in names


def _changes(call: ir.Expr, names: set[str]) -> bool:
    """True if it is ``name.mul_(…)``."""
    if not isinstance(call, ir.Call) or not isinstance(call.func, ir.Attribute):
        return False
    method = last_called(call)
    changing = method.endswith("_") and not method.startswith("_")
    return changing and method not in CHANGES_NOTHING and _is_one_of(call.func.value, names)


def reports(program: Program) -> Iterator[Report]:
    for fact in changed_views(program):
        change, call, returned = fact.change, fact.call, fact.returned
        harm = (
            "no gradient is reduced, and the model never trains"
            if fact.alone
            else "its backward does not gather the parameters and crashes"
        )
        yield Report(
            program.span(change),
            f"`{program.text(change.path, change.node)}` changes the view from "
            f"`{program.text(call.path, call.node)}` in place, which drops the module's FSDP hook: "
            f"{harm}",
            "drops the unit's backward hook",
            (
                program.evidence(call, "output of a sharded module"),
                program.evidence(returned, "returned as a view here"),
                program.evidence(fact.shard.site, "sharded here"),
                *program.conditions(call, fact.shard.site),
            ),
            partial(out_of_place, Code.of(program.tree(change.path)), change.node),
        )


_BY_HAND = "clone the output first by hand"
_PLAIN = (ir.Name, ir.Constant, ir.Call, ir.Attribute, ir.Subscript)


@builder
def out_of_place(code: Code, change: ir.Node) -> Fix:
    """Change ``h += x`` to ``h = h + x``, and ``h.mul_(2)`` to ``h = h.mul(2)``."""
    if isinstance(change, ir.AugAssign):
        edit = code.edit(change.start, change.end, _augmented(code, change))
        operands: list[ir.Expr] = [change.value]
    elif isinstance(change, ir.Call) and isinstance(change.func, ir.Attribute):
        method, name = change.func.attr, code.slice(change.func.value)
        if method[:-1] not in MAKES_NEW:
            raise NoFixError(f"`{method}` has no out-of-place equivalent; {_BY_HAND}")
        arguments = code.text[change.func.end : change.end]
        edit = code.edit(change.start, change.end, f"{name} = {name}.{method[:-1]}{arguments}")
        operands = [argument.value for argument in change.args]
    else:
        raise NoFixError(f"`{code.short(change)}` writes to a part of the view; {_BY_HAND}")
    title = "make a new tensor instead of changing the view"
    numbers = all(_is_number(code, each) for each in operands)
    title += "; other names keep the old values" if numbers else "; its dtype may differ"
    return Fix(title, Safety.UNSAFE, (edit,))


def _is_number(code: Code, operand: ir.Expr) -> bool:
    meant = code.meaning(operand)
    return isinstance(meant, ir.Constant) and type(meant.value) in (int, float)


def _augmented(code: Code, change: ir.AugAssign) -> str:
    operator = code.text[change.target.end : change.value.start]
    if not re.fullmatch(r"\s*\S+=\s*", operator):
        raise NoFixError(f"`{code.short(change)}` cannot be rewritten; {_BY_HAND}")
    name, value = code.slice(change.target), code.slice(change.value)
    if operator.strip()[:-1] not in CHANGES_IN_PLACE:
        raise NoFixError(f"`{code.short(change)}` is not plain arithmetic; {_BY_HAND}")
    value = value if isinstance(change.value, _PLAIN) else f"({value})"
    return f"{name} = {name} {operator.strip()[:-1]} {value}"
