"""Conditions that are surely those of one number, rather than of the elements of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.migrate.single.deciding import called_in, passed, together


class Conditions:
    """The conditions of the statements of a program.

    Args:
        codes: all files of the program.
    """

    def __init__(self, codes: Sequence[Code]) -> None:
        self._joint = together(codes)
        nodes = (node for code in codes for node in ir.walk(code.module))
        tests = (node.test for node in nodes if isinstance(node, (ir.If, ir.While, ir.Conditional)))
        parts = [part for test in tests for part in _parts(test)]
        called = (part.func if isinstance(part, ir.Call) else part for part in parts)
        tested = {ir.last_name(each) for each in called}
        given = [(name, value) for _, (_, _, name), value in passed(codes)]
        tested |= {ir.last_name(value) for name, value in given if name in tested}
        self._tested = tested - {""}

    def of(self, code: Code, node: ir.Node) -> Iterator[ir.Expr]:
        """Yield those of a test, or of a statement that sets or returns one."""
        if isinstance(node, (ir.If, ir.While)):
            yield from () if self._is_of_a_batch(code, node) else _parts(node.test)
        elif isinstance(node, (ir.Assign, ir.Return)) and node.value is not None:
            tested = not self._tested.isdisjoint(_names(code, node))
            yield from _parts(node.value) if tested else ()

    def _is_of_a_batch(self, code: Code, test: ir.If | ir.While) -> bool:
        """True for a test in a loop that evaluates; what it counts is compared after the loop."""
        around = (each for each in code.ancestors(test) if isinstance(each, (ir.For, ir.While)))
        loop = next(around, None)
        if loop is None or code.function(loop) is not code.function(test):
            return False
        leaves = any(isinstance(each, (ir.Raise, ir.Return)) for each in ir.walk(test))
        return not leaves and called_in(loop.body).isdisjoint(self._joint)


def _parts(test: ir.Expr) -> Iterator[ir.Expr]:
    if isinstance(test, ir.BoolOp):
        yield from (*_parts(test.left), *_parts(test.right))
    else:
        yield from _parts(test.operand) if isinstance(test, ir.Not) else (test,)


def _names(code: Code, node: ir.Assign | ir.Return) -> Iterator[str]:
    """Yield the names of what a statement sets, or of the function that it returns from."""
    if isinstance(node, ir.Assign):
        yield from map(ir.last_name, node.targets)
    elif (function := code.function(node)) is not None:
        yield function.name
