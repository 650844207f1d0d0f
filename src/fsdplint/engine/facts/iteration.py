"""What loops run through, as it is written."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree

# What hands on the elements that it is given.
_FUNCTIONS = frozenset({"iter", "list", "reversed", "tuple"})
_METHODS = frozenset({"children", "values"})
_PAIRS = frozenset({"items", "named_children"})


def iterated(tree: Tree, loop: ir.For, name: str) -> ir.Expr | None:
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
