"""Views that FSDP2 units return, changed in place, which takes the unit's hook off the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Shard
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode, last_called
from fsdplint.engine.facts.iteration import iterated
from fsdplint.engine.layers import library_class
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.tree import Tree
from fsdplint.engine.values import ClassValue, Condition, Const, FunctionValue, Object, Taint
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import RETURNS_NEW
from fsdplint.knowledge.tensors import CHANGES_NOTHING, DESCRIPTIONS, GIVES_VIEW, MAKES_NEW


@dataclass(frozen=True, slots=True)
class ChangedView:
    """``change`` writes to the view that ``returned`` makes and ``call`` gives.

    Attributes:
        alone: the unit is the whole model, so that no other hook stands in for this one.
        fresh: whatever is called there, nothing else holds the memory of what it returns.
    """

    call: Site
    change: Site
    returned: Site
    shard: Shard
    alone: bool
    fresh: bool


def changed_views(program: Program) -> Iterator[ChangedView]:
    """Changes in place of views that units return, in forwards that a backward follows."""
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
            fresh = alone and _always_fresh(program, call)
            yield ChangedView(call, change, returned, shard, alone, fresh)


def _reshards(shard: Shard) -> bool:
    """Whether the forward of an inner unit surely leaves it without its parameters.

    Of units that are told apart by a number of theirs, some do and some do not.
    """
    given = shard.keywords.get("reshard_after_forward", Const(None))
    if isinstance(given, Condition):
        compared = given.operands[0] if given.op == "not" else given
        told_apart = isinstance(compared, Condition) and compared.op in ("==", ">")
        return told_apart and bool(given.taint & Taint.ELEMENT)
    return isinstance(given, Const) and given.value in (None, True)


def _inner_calls(program: Program, module: Object) -> Iterator[Site]:
    """The calls of a unit in the forward of the module that it is an attribute or element of."""
    held = module.parent if module.step.startswith("[") else module
    owners = () if held is None else held.ancestors()
    forward = next(filter(None, map(_forward, owners)), None)
    if held is None or forward is None:
        return
    attribute, path = held.step.removeprefix("."), forward.scope.unit.path
    tree, names = program.tree(path), {attribute} if held is module else set()
    for node in _own(forward.function):
        if isinstance(node, ir.For) and held is not module:
            bound = {each.id for each in ir.walk(node.target) if isinstance(each, ir.Name)}
            names |= {name for name in bound if _is_own(iterated(tree, node, name), attribute)}
    for node in _own(forward.function):
        called = tree.meaning(node.func) if isinstance(node, ir.Call) else node
        if last_called(called) in names and isinstance(called, (ir.Name, ir.Attribute)):
            own = isinstance(called, ir.Name) or _of_self(called)
            if own and isinstance(called, ir.Attribute) is (held is module):
                yield Site(path, node)


def _is_own(node: ir.Expr | None, attribute: str) -> bool:
    """Whether it is ``self.attribute``, or one below it."""
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
    """What the module's ``forward`` surely returns a view by, in all of its returns."""
    forward = _forward(module)
    if forward is None:
        return None
    returns = [n for n in _own(forward.function) if isinstance(n, ir.Return)]
    tree = program.tree(forward.scope.unit.path)
    values = [_source(tree, forward.function, each) for each in returns]
    if not values or not all(value is not None and _is_view(value) for value in values):
        return None
    assert values[0] is not None
    return Site(forward.scope.unit.path, values[0])


def _own(function: ir.Function) -> Iterator[ir.Node]:
    nested = {
        inner
        for node in ir.walk(function)
        if isinstance(node, (ir.FunctionDef, ir.Lambda))
        for inner in ir.walk(node)
    }
    return (node for node in ir.walk(function) if node not in nested)


def _source(tree: Tree, function: ir.Function, returned: ir.Return) -> ir.Expr | None:
    """What is returned, or was assigned last to the name that is."""
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


# Who else holds it


def _always_fresh(program: Program, site: Site) -> bool:
    """Whether every module that may be called at a place returns memory that it does not keep.

    A hook or another forward may keep what it returns, and other files may call it with any module.
    """
    keeps = any(word in unit.text for unit in program.units for word in ("_hook", ".forward ="))
    if keeps or program.project.early_stops or not program.tree(site.path).is_private():
        return False
    for trace in program.traces:
        for call in trace.calls("forward"):
            module = call.receiver
            if call.site.path != site.path or call.site.node is not site.node:
                continue
            if not isinstance(module, Object) or not _returns_fresh(program, module):
                return False
            if any({module, *module.ancestors()} & set(escape.objects) for escape in trace.escapes):
                return False
    return True


def _returns_fresh(program: Program, module: Object) -> bool:
    forward = _forward(module)
    if forward is None or not isinstance(module.cls, ClassValue) or forward.function.decorators:
        return False
    if module.cls.lookup("__call__") is not None or forward.function.is_generator:
        return False
    tree = program.tree(forward.scope.unit.path)
    returns = [n.value for n in _own(forward.function) if isinstance(n, ir.Return)]
    return all(r is not None and _is_fresh(tree, forward.function, module, r) for r in returns)


def _is_fresh(tree: Tree, function: ir.Function, module: Object, value: ir.Expr) -> bool:
    """Whether ``value`` is a tensor, or a view of one, that was made for it and is not kept."""
    if isinstance(value, ir.Name):
        given = tree.meaning(value)
        named = [n for n in ir.walk(function) if isinstance(n, ir.Name) and n.id == value.id]
        kept = [n for n in named if n is not value and not _is_described(tree, n)]
        return len(kept) == 1 and given is not value and _is_fresh(tree, function, module, given)
    if not isinstance(value, ir.Call) or not isinstance(value.func, ir.Attribute):
        return isinstance(value, ir.BinOp)
    called = value.func
    if called.attr in GIVES_VIEW:
        return _is_fresh(tree, function, module, called.value)
    layer = module.attrs.get(called.attr) if _is_one_of(called.value, {"self"}) else None
    if isinstance(layer, Object):
        return library_class(layer) in RETURNS_NEW
    return called.attr in MAKES_NEW and not _is_one_of(called.value, {"self"})


def _is_described(tree: Tree, name: ir.Name) -> bool:
    parent = tree.parent(name)
    return isinstance(parent, ir.Attribute) and parent.attr in DESCRIPTIONS


# What is done with it


def _change(program: Program, site: Site) -> Site | None:
    """Where the name that a call's result is assigned to is first used, if that is in place."""
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
    """The statement that gives ``value`` a name, alone or among others, and that name."""
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
    """The first statement behind ``statement`` that writes to what it calls ``name``."""
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
    """The statements that are run behind one, contexts and what is tried entered and left."""
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
    """Whether it is ``name.mul_(…)``."""
    if not isinstance(call, ir.Call) or not isinstance(call.func, ir.Attribute):
        return False
    method = last_called(call)
    changing = method.endswith("_") and not method.startswith("_")
    return changing and method not in CHANGES_NOTHING and _is_one_of(call.func.value, names)
