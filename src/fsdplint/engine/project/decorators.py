"""Whether a decorator of the project may keep what it decorates, as a registry does.

Of a decorator that keeps nothing, no other code can get the decorated function: one that sets an
attribute, checks a requirement, or returns a wrapper that calls the function. What is decorated
counts as kept unless every use of it is of one of these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fsdplint.engine import ir
from fsdplint.knowledge.standard_library import COPY_NAME, ONLY_LOOK

# The name of a library's function or class, "" for anything else.
NameOf = Callable[[ir.Expr], str]

# Attributes that hold a text.
_TEXTS = frozenset({"__doc__", "__module__", "__name__", "__qualname__"})


def keeps_nothing(decorator: ir.Function, name_of: NameOf, *, called: bool) -> bool:
    """True if no use of what a function decorates may outlive the decoration, but by its result.

    Args:
        name_of: returns the library's name of what an expression of its file refers to.
        called: whether it decorates by what it returns, as ``@decorator(...)``.
    """
    inner = {each.name: each for each in _inside(decorator)}
    if called:
        body = ir.walk_scope(*decorator.body)
        returned = [node.value for node in body if isinstance(node, ir.Return)]
        names = [value.id for value in returned if isinstance(value, ir.Name)]
        if not returned or len(names) < len(returned) or not inner.keys() >= set(names):
            return False
        given = frozenset[str]().union(*(_given(inner[name]) for name in names))
    else:
        given = _given(decorator)
    held = given.union(each.name for each in _nested(decorator))
    return _is_harmless(decorator, held, name_of)


def _is_harmless(decorator: ir.Function, held: frozenset[str], name_of: NameOf) -> bool:
    """True if a decorator hands ``held``, with what it decorates, to nothing but its caller."""
    harmless: set[ir.Node] = set()
    for node in ir.walk(decorator):
        if isinstance(node, ir.Scope) and not held.isdisjoint(node.names):
            return False
        if isinstance(node, ir.Lambda) and not held.isdisjoint(_names(node.function)):
            return False
        if isinstance(node, ir.FunctionDef):
            decorators = node.function.decorators
            if not all(_copies_name(each, name_of) for each in decorators):
                return False
        harmless.update(_looked_at(node, name_of))
    names = (node for node in ir.walk(decorator) if isinstance(node, ir.Name))
    return all(name.id not in held or name in harmless for name in names)


def _inside(function: ir.Function) -> Iterator[ir.Function]:
    """Yield the functions that a function defines, without those inside of these."""
    for node in ir.walk_scope(*function.body):
        if isinstance(node, ir.FunctionDef):
            yield node.function


def _nested(function: ir.Function) -> Iterator[ir.Function]:
    for inner in _inside(function):
        yield inner
        yield from _nested(inner)


def _given(function: ir.Function) -> frozenset[str]:
    """Return the parameter that receives what is decorated, if the function decorates."""
    first = (each.name for each in function.parameters[:1] if each.kind != "keyword")
    return frozenset(first)


def _names(function: ir.Function) -> Iterator[str]:
    return (node.id for node in ir.walk(function) if isinstance(node, ir.Name))


def _copies_name(decorator: ir.Expr, name_of: NameOf) -> bool:
    return isinstance(decorator, ir.Call) and name_of(decorator.func) in COPY_NAME


def _looked_at(node: ir.Node, name_of: NameOf) -> Iterator[ir.Node]:
    """Yield the parts of a node that it does not hand on to anything but the decorator's caller."""
    match node:
        case ir.Return(value=ir.Name() as value):
            yield value
        case ir.Call():
            yield node.func
            if name_of(node.func) in ONLY_LOOK | COPY_NAME:
                yield from (argument.value for argument in node.args[:1])
        case ir.Attribute(attr=attr) if attr in _TEXTS:
            yield node.value
        case ir.Assign():
            yield from (each.value for each in node.targets if isinstance(each, ir.Attribute))
        case ir.Compare(op="Is" | "IsNot"):
            yield node.left
