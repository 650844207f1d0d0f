"""Whether a decorator of the project may keep what it decorates, as a registry does.

Of a decorator that keeps nothing, no other code can get the decorated function: one that sets an
attribute, checks a requirement, or returns a wrapper that calls the function. What is decorated
counts as kept unless every use of it is of one of these kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir

# They look at a function or class, and return another thing.
_INSPECT = frozenset(
    {"callable", "hasattr", "isinstance", "issubclass", "repr", "setattr", "signature"}
    | {"iscoroutinefunction", "isclass", "isfunction", "isgeneratorfunction", "ismethod", "str"}
)
# They copy its name and documentation to a wrapper.
_WRAP = frozenset({"update_wrapper", "wraps"})
# Attributes that hold a text.
_TEXTS = frozenset({"__doc__", "__module__", "__name__", "__qualname__"})


def keeps_nothing(decorator: ir.Function, *, called: bool) -> bool:
    """True if no use of what a function decorates may outlive the decoration, but by its result.

    Args:
        called: whether it decorates by what it returns, as ``@decorator(...)``.
    """
    inner = {each.name: each for each in _inside(decorator)}
    if called:
        body = list(ir.walk_scope(*decorator.body))
        returned = [ir.last_name(node.value) for node in body if isinstance(node, ir.Return)]
        if not returned or not inner.keys() >= set(returned):
            return False
        given = frozenset[str]().union(*(_given(inner[name]) for name in returned))
    else:
        given = _given(decorator)
    return _is_harmless(decorator, given.union(each.name for each in _nested(decorator)))


def _is_harmless(decorator: ir.Function, held: frozenset[str]) -> bool:
    """True if a decorator hands ``held``, with what it decorates, to nothing but its caller."""
    harmless: set[ir.Node] = set()
    for node in ir.walk(decorator):
        if isinstance(node, ir.Scope) and not held.isdisjoint(node.names):
            return False
        if isinstance(node, ir.Lambda) and not held.isdisjoint(_names(node.function)):
            return False
        if isinstance(node, ir.FunctionDef) and not all(map(_wraps, node.function.decorators)):
            return False
        harmless.update(_looked_at(node))
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


def _wraps(decorator: ir.Expr) -> bool:
    return isinstance(decorator, ir.Call) and ir.last_name(decorator.func) in _WRAP


def _looked_at(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the parts of a node that it does not hand on to anything but the decorator's caller."""
    match node:
        case ir.Return(value=ir.Name() as value):
            yield value
        case ir.Call():
            yield node.func
            if ir.last_name(node.func) in _INSPECT | _WRAP:
                yield from (argument.value for argument in node.args[:1])
        case ir.Attribute(attr=attr) if attr in _TEXTS:
            yield node.value
        case ir.Assign():
            yield from (each.value for each in node.targets if isinstance(each, ir.Attribute))
        case ir.Compare(op="Is" | "IsNot"):
            yield node.left
