"""The names that code reads and writes, as dotted paths: ``x``, ``self.optimizer``.

A path is related to its prefixes and to the paths it is a prefix of: reading ``self`` reads
``self.optimizer``, and writing ``config`` writes ``config.lr``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from fsdplint.engine import ir
from fsdplint.fixes.code import Code

_MUTATORS = frozenset(
    {
        "add",
        "add_special_tokens",
        "add_tokens",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
        "__setitem__",
    }
)

# Methods of torch.nn.Module that only list what it holds.
LISTING = frozenset(
    {
        "parameters",
        "named_parameters",
        "modules",
        "named_modules",
        "children",
        "named_children",
        "buffers",
        "named_buffers",
        "state_dict",
    }
)


@dataclass(frozen=True, slots=True)
class Names:
    """The paths that a piece of code reads and writes."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def add(self, other: Names) -> None:
        self.reads.update(other.reads)
        self.writes.update(other.writes)

    @property
    def all(self) -> set[str]:
        return self.reads | self.writes


def dotted(node: ir.Node) -> str | None:
    """Return the text of a name or of its attributes, None for anything else."""
    if isinstance(node, ir.Name):
        return node.id
    if isinstance(node, ir.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def related(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def clash(names: Iterable[str], others: Iterable[str]) -> str | None:
    """Return the first of ``names`` that is related to one of ``others``."""
    others = set(others)
    return next((n for n in sorted(names) if any(related(n, o) for o in others)), None)


def names_in(node: ir.Node) -> Names:
    """Return what ``node`` itself reads and writes, without what its calls do."""
    names = Names()
    _collect(node, names)
    return names


def _collect(node: ir.Node, names: Names) -> None:
    path = dotted(node)
    if path is not None:
        names.reads.add(path)
        return
    names.add(_own(node))
    if isinstance(node, ir.Function):
        names.add(_free(node))
        return
    if isinstance(node, ir.For):
        names.add(_of_loop(node))
        return
    if isinstance(node, (ir.Comprehension, ir.ClassDef)):
        names.add(_inner(node))
        return
    written = set() if isinstance(node, ir.AugAssign) else set(_targets(node))
    for child in ir.children(node):
        if child not in written:
            _collect(child, names)


def _own(node: ir.Node) -> Names:
    """Return what ``node`` itself writes, and what it reads to find the places it writes."""
    names = Names(writes=set(_bound(node)))
    for target in _targets(node):
        _write(target, names)
    if isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
        receiver = dotted(node.func.value)
        if receiver is not None and node.func.attr in _MUTATORS:
            names.writes.add(receiver)
    return names


def written_between(code: Code, use: ir.Node, start: int, end: int) -> set[str]:
    """Return what code that begins in the range writes, in the function or module of ``use``."""
    scope = code.function(use) or code.module
    nodes = (node for node in ir.walk(scope) if start <= node.start < end)
    return {path for node in nodes for path in _own(node).writes}


def _targets(node: ir.Node) -> tuple[ir.Expr, ...]:
    if isinstance(node, (ir.Assign, ir.Delete)):
        return node.targets
    if isinstance(node, (ir.AugAssign, ir.For, ir.NamedExpr, ir.Clause)):
        return (node.target,)
    if isinstance(node, ir.WithItem) and node.target is not None:
        return (node.target,)
    return ()


def _write(target: ir.Expr, names: Names) -> None:
    path = dotted(target)
    if path is not None:
        names.writes.add(path)
    elif isinstance(target, ir.Subscript):
        # Writing an element changes the container, and reads it to find the element.
        _write(target.value, names)
        _collect(target.value, names)
        _collect(target.index, names)
    elif isinstance(target, ir.Attribute):
        _collect(target.value, names)
    else:
        for child in ir.children(target):
            _write(child, names)  # type: ignore[arg-type]  # targets hold expressions only


def _bound(node: ir.Node) -> Iterator[str]:
    if isinstance(node, ir.FunctionDef):
        yield node.function.name
    elif isinstance(node, (ir.ClassDef, ir.Handler)):
        yield from filter(None, [node.name])
    elif isinstance(node, ir.Parameter):
        yield node.name
    elif isinstance(node, ir.Matches):
        yield from node.names
    elif isinstance(node, (ir.Import, ir.ImportFrom)):
        for name, alias in node.names:
            yield alias or name.split(".")[0]


def bound_by(node: ir.Node) -> Iterator[str]:
    """Yield the variables that ``node`` itself binds in its scope."""
    yield from _bound(node)
    targets: list[ir.Node] = list(_targets(node))
    while targets:
        target = targets.pop()
        if isinstance(target, ir.Name):
            yield target.id
        elif isinstance(target, (ir.Collection, ir.Starred)):
            targets.extend(ir.children(target))


def loop_variables(node: ir.Node) -> set[str]:
    """Return the plain names that loops in ``node`` bind."""
    loops = (loop for loop in ir.walk(node) if isinstance(loop, ir.For))
    return {name for loop in loops for name in bound_by(loop)}


def fresh(code: Code, use: ir.Node, name: str, besides: Iterable[str] = ()) -> str:
    """Return ``name``, with underscores until the function or module of ``use`` lacks it."""
    scope = code.function(use) or code.module
    taken = {*_variables(scope), *(path.split(".")[0] for path in besides)}
    while name in taken:
        name += "_"
    return name


def _free(function: ir.Function) -> Names:
    """Return what a function reads and writes of its surroundings, defaults included."""
    names, outer = Names(), Names()
    for statement in function.body:
        _collect(statement, names)
    for parameter in function.parameters:
        for expression in filter(None, (parameter.default, parameter.annotation)):
            _collect(expression, outer)
    for expression in (*function.decorators, *filter(None, (function.returns,))):
        _collect(expression, outer)
    declared = {n for s in ir.walk(function) if isinstance(s, ir.Scope) for n in s.names}
    outer.add(_without(names, set(_locals(function)) - declared))
    return outer


def _locals(scope: ir.Node) -> Iterator[str]:
    """Yield the variables bound in a function, class or comprehension, without nested scopes."""
    for child in ir.children(scope):
        yield from bound_by(child)
        if not isinstance(child, (ir.Function, ir.ClassDef, ir.Comprehension)):
            yield from _locals(child)


def _inner(node: ir.Comprehension | ir.ClassDef) -> Names:
    """Return the names of a comprehension or a class body, without its local variables."""
    names = Names()
    for child in ir.children(node):
        _collect(child, names)
    names = _without(names, set(_locals(node)))
    names.writes.update(_bound(node))
    return names


def _of_loop(node: ir.For) -> Names:
    """Return the names of a loop, whose body does not read earlier values of its variables."""
    body, head, target = Names(), Names(), Names()
    for statement in node.body:
        _collect(statement, body)
    for part in (node.iterable, *node.orelse):
        _collect(part, head)
    _write(node.target, target)
    head.reads.update(_without(body, target.writes).reads | target.reads)
    head.writes.update(body.writes | target.writes)
    return head


def _without(names: Names, local: set[str]) -> Names:
    def kept(paths: set[str]) -> set[str]:
        return {path for path in paths if path.split(".")[0] not in local}

    return Names(kept(names.reads), kept(names.writes))


def effects(code: Code, node: ir.Node) -> Names:
    """Return what ``node`` reads and writes, including its calls of this file's code.

    A method that is not found in the file may read anything of its receiver.
    """
    names = names_in(node)
    _add_calls(code, node, names, set())
    return names


def _add_calls(code: Code, node: ir.Node, names: Names, seen: set[ir.Function]) -> None:
    for call in ir.walk(node):
        if not isinstance(call, ir.Call):
            continue
        receiver = dotted(call.func.value) if isinstance(call.func, ir.Attribute) else None
        callees = _callees(code, call, receiver)
        if isinstance(call.func, ir.Attribute) and not callees:
            unknown = call.func.attr not in LISTING
            names.reads.update([receiver] if receiver is not None and unknown else ())
            names.reads.update(_super_receiver(code, call.func))
        for function in callees:
            if function not in seen:
                seen.add(function)
                inner = _called(function, receiver)
                _add_calls(code, function, inner, seen)
                names.add(inner)


def _callees(code: Code, call: ir.Call, receiver: str | None) -> list[ir.Function]:
    if isinstance(call.func, ir.Name):
        name = call.func.id
        found = (f for f in code.functions if not isinstance(code.scope(f), ir.ClassDef))
        return [f for f in found if f.name == name]
    method = code.function(call)
    if receiver is None or method is None or receiver != _self(method):
        return []
    assert isinstance(call.func, ir.Attribute)
    owner = code.scope(method)
    found = (f for f in code.functions if code.scope(f) is owner)
    return [f for f in found if f.name == call.func.attr]


def _self(method: ir.Function) -> str | None:
    first = method.parameters[0] if method.parameters else None
    return first.name if first is not None and first.kind == "positional" else None


def _called(function: ir.Function, receiver: str | None) -> Names:
    """Return what a callee uses of its surroundings, and of its receiver by the caller's name."""
    own = _self(function)
    names = _free(function)
    if receiver is None or own is None:
        return names
    inside = Names()
    for statement in function.body:
        _collect(statement, inside)
    for paths, found in ((names.reads, inside.reads), (names.writes, inside.writes)):
        tails = (path.removeprefix(own) for path in found if related(path, own))
        paths.update(receiver + tail for tail in tails)
    return names


def _super_receiver(code: Code, func: ir.Attribute) -> Iterator[str]:
    method = code.function(func)
    inner = func.value.func if isinstance(func.value, ir.Call) else None
    if isinstance(inner, ir.Name) and inner.id == "super" and method is not None:
        yield _self(method) or "self"


@lru_cache(maxsize=64)  # fixes of one file repeat the same calls
def _variables(scope: ir.Function | ir.Module) -> frozenset[str]:
    """Return the first parts of all paths that a scope reads or writes, and its parameters."""
    found = {path.split(".")[0] for statement in scope.body for path in names_in(statement).all}
    if isinstance(scope, ir.Function):
        found.update(parameter.name for parameter in scope.parameters)
    return frozenset(found)


@lru_cache(maxsize=64)  # fixes of one file repeat the same calls
def binders(code: Code, scope: ir.Function | ir.ClassDef | ir.Module) -> dict[str, list[ir.Node]]:
    """Return the nodes of a scope that bind a variable, by its name."""
    found: dict[str, list[ir.Node]] = {}
    for node in code.nodes_of(scope):
        for name in bound_by(node):
            found.setdefault(name, []).append(node)
    return found
