"""Loops: what they run through, whether that is known, and which places they repeat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument, called
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.shape import exits
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.knowledge.data import IN_ORDER

Loop = ir.For | ir.Clause
Frame = tuple[str, ir.Node]  # as `Site.frames`
WHOLE_VIEWS = (".modules()", ".named_modules()")


def is_known_one(program: Program, shard: Shard) -> bool:
    """Whether a call shards the module that it is taken to, and no other that a list holds."""
    frames = shard.site.frames()
    for index, (path, node) in enumerate(frames):
        for loop in loops(program.tree(path), node):
            if _bound(loop) & _names(node):
                tree, given = _given(program, frames[: index + 1], loop.iterable)
                if not keeps_order(tree, given) and not is_turned(tree, given):
                    return False
    return True


def is_chosen(program: Program, shard: Shard) -> bool:
    """Whether a test that is not understood says which of a loop's elements a call shards."""
    tests = [guard.test for guard in shard.site.guards]
    return any(
        _bound(loop) & _names(test)
        for path, node in shard.site.frames()
        for loop in loops(program.tree(path), node)
        for test in tests
    )


def _given(program: Program, frames: Sequence[Frame], iterable: ir.Expr) -> tuple[Tree, ir.Expr]:
    """An iterable, or what a caller gives for the parameter that it is, and the tree of that."""
    *callers, (path, node) = frames
    tree = program.tree(path)
    function = tree.function(node)
    plain = iterable
    while isinstance(plain, ir.Call) and _called(plain) in IN_ORDER and plain.args:
        plain = plain.args[0].value
    if not callers or not function or function.decorators or not isinstance(plain, ir.Name):
        return tree, iterable
    found = called(program, *callers[-1])
    if found is None or found[1] is not function or not tree.is_parameter(plain):
        return tree, iterable
    position = [each.name for each in function.parameters].index(plain.id)
    written = argument(callers[-1][1], position, plain.id)
    if written is None:
        return tree, iterable
    outer, given = _given(program, callers, written.value)
    return (outer, given) if _is_fixed(outer.meaning(given)) else (tree, iterable)


def _is_fixed(node: ir.Expr) -> bool:
    """Whether it is what no function can change that is given it."""
    return isinstance(node, ir.Collection) and node.kind == "tuple"


@lru_cache(maxsize=1024)  # asked again for every path that is in the loop
def _bound(loop: Loop) -> frozenset[str]:
    """The variables of a loop, and those that its body makes of them."""
    names = {each.id for each in ir.walk(loop.target) if isinstance(each, ir.Name)}
    body = loop.body if isinstance(loop, ir.For) else ()
    for statement in body:
        for node in ir.walk(statement):
            if isinstance(node, ir.Assign) and names & _names(node.value):
                names |= {name for target in node.targets for name in _names(target)}
    return frozenset(names)


def _names(node: ir.Node) -> set[str]:
    return {each.id for each in ir.walk(node) if isinstance(each, ir.Name)}


def loops(tree: Tree, node: ir.Node) -> Iterator[Loop]:
    """The loops and comprehensions around ``node`` in its function."""
    for around in tree.ancestors(node):
        if isinstance(around, (ir.Function, ir.ClassDef)):
            return
        if isinstance(around, ir.For):
            yield around
        if isinstance(around, ir.Comprehension):
            yield from around.clauses


def keeps_order(tree: Tree, iterable: ir.Expr) -> bool:
    """Whether an iterable is run through in the order that the engine takes its elements in."""
    plain = iterated(tree, iterable)
    if isinstance(plain, ir.Call):
        return isinstance(plain.func, ir.Attribute) or _called(plain) == "range"
    if isinstance(plain, ir.Collection):
        return not any(isinstance(each, ir.Starred) for each in plain.elements)
    return isinstance(plain, ir.Attribute)


def iterated(tree: Tree, iterable: ir.Expr) -> ir.Expr:
    """What an iterable runs through, without the calls that keep its order."""
    iterable = _meant(tree, iterable)
    while isinstance(iterable, ir.Call) and _called(iterable) in IN_ORDER and iterable.args:
        iterable = _meant(tree, iterable.args[0].value)
    return iterable


def _meant(tree: Tree, iterable: ir.Expr) -> ir.Expr:
    """What a variable holds; a list that it was given first may have got more since."""
    meaning = tree.meaning(iterable)
    fixed = isinstance(meaning, ir.Collection) and meaning.kind == "tuple"
    return meaning if fixed or isinstance(meaning, (ir.Attribute, ir.Call)) else iterable


def _called(call: ir.Call) -> str:
    return call.func.id if isinstance(call.func, ir.Name) else ""


def is_turned(tree: Tree, iterable: ir.Expr) -> bool:
    """Whether it is ``reversed(…)`` of what is run through in a known order."""
    iterable = _meant(tree, iterable)
    turned = isinstance(iterable, ir.Call) and _called(iterable) == "reversed"
    if not turned or not isinstance(iterable, ir.Call) or len(iterable.args) != 1:
        return False
    return keeps_order(tree, iterable.args[0].value)


def is_whole_view(tree: Tree, iterable: ir.Expr) -> bool:
    """Whether it is ``model.modules()`` or the like, which begins with the model itself."""
    plain = iterated(tree, iterable)
    func = plain.func if isinstance(plain, ir.Call) else None
    return isinstance(func, ir.Attribute) and f".{func.attr}()" in WHOLE_VIEWS


# Places that loops repeat


def loops_around(program: Program, site: Site) -> frozenset[ir.Node]:
    """The loops around a place, in its own function and in those that called it."""
    return frozenset(
        above
        for path, node in site.frames()
        for above in program.tree(path).ancestors(node)
        if isinstance(above, (ir.For, ir.While))
    )


def share_loop(program: Program, one: Site, other: Site) -> bool:
    """Whether some loop runs both places in each iteration."""
    return bool(loops_around(program, one) & loops_around(program, other))


def is_endless(program: Program, site: Site) -> bool:
    """Whether a place is in a ``while True`` that only an error leaves."""
    return any(
        isinstance(loop, ir.While)
        and isinstance(loop.test, ir.Constant)
        and bool(loop.test.value)
        and not any(map(_leaves, ir.walk_scope(*loop.body)))
        for loop in loops_around(program, site)
    )


def _leaves(node: ir.Node) -> bool:
    out = isinstance(node, (ir.Break, ir.Return, ir.Raise))
    return out or (isinstance(node, ir.Stmt) and exits(node))


def leaves_around(tree: Tree, node: ir.Node) -> bool:
    """Whether the loop around a node, or its function, is left behind it."""
    statements = [above for above in (node, *tree.ancestors(node)) if isinstance(above, ir.Stmt)]
    blocks = (tree.block(each).statements for each in _within_loop(statements))
    return any(isinstance(each, (ir.Break, ir.Return)) for block in blocks for each in block)


def _within_loop(statements: Sequence[ir.Stmt]) -> Iterator[ir.Stmt]:
    for statement in statements:
        if isinstance(statement, (ir.For, ir.While, ir.FunctionDef, ir.ClassDef)):
            return
        yield statement


# Where a loop has its elements from


# What hands on the elements that it is given.
_FUNCTIONS = frozenset({"iter", "list", "reversed", "tuple"})
_METHODS = frozenset({"children", "values"})
_PAIRS = frozenset({"items", "named_children"})


def source_of(tree: Tree, loop: ir.For, name: str) -> ir.Expr | None:
    """The expression whose elements ``loop`` gives to the variable ``name``, if that is known."""
    return _iterated(tree, loop.target, loop.iterable, name)


def _iterated(tree: Tree, target: ir.Expr, iterable: ir.Expr, name: str) -> ir.Expr | None:
    iterable = tree.meaning(iterable)
    if isinstance(iterable, ir.Call):
        for part, given in _handed_on(iterable, target):
            found = _iterated(tree, part, given, name)
            if found is not None:
                return found
        return None
    if isinstance(iterable, ir.Subscript):
        return _iterated(tree, target, iterable.value, name)
    return iterable if isinstance(target, ir.Name) and target.id == name else None


def _handed_on(call: ir.Call, target: ir.Expr) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    """The parts of a loop's target, each with what it gets the elements of by ``call``."""
    plain = [each.value for each in call.args if not each.keyword and not each.star]
    parts = target.elements if isinstance(target, ir.Collection) else ()
    function = call.func.id if isinstance(call.func, ir.Name) and plain else ""
    if function == "zip" and len(plain) == len(parts):
        yield from zip(parts, plain, strict=True)
    elif function == "enumerate" and len(parts) == 2:
        yield parts[1], plain[0]
    elif function in _FUNCTIONS:
        yield target, plain[0]
    elif isinstance(call.func, ir.Attribute) and not call.args:
        if call.func.attr in _METHODS:
            yield target, call.func.value
        elif call.func.attr in _PAIRS and len(parts) == 2:
            yield parts[1], call.func.value
