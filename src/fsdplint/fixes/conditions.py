"""Conditions: their text and their opposite, and those that decide between two places."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import STATEMENTS
from fsdplint.fixes.code import Code, NoFixError

_OPERATOR = re.compile(r"==|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\b|\bis\b")
_OPPOSITE = {
    "==": "!=",
    "<": ">=",
    ">": "<=",
    "in": "not in",
    "is": "is not",
}
_OPPOSITE |= {right: left for left, right in _OPPOSITE.items()}
_ATOMS = (ir.Name, ir.Attribute, ir.Call, ir.Subscript, ir.Constant)


def negated(code: Code, test: ir.Expr) -> str:
    """``not x`` for ``x`` and the other way round, ``!=`` for ``==``, and so on."""
    if isinstance(test, ir.Not):
        return code.slice(test.operand)
    if isinstance(test, ir.Compare):
        return _opposite(code, test)
    text = code.slice(test)
    if isinstance(test, ir.BinOp) and test.op == "Modulo":
        return f"{text} == 0"
    return f"not {text}" if isinstance(test, _ATOMS) else f"not ({text})"


def _opposite(code: Code, test: ir.Compare) -> str:
    middle = _OPERATOR.search(code.text, test.left.end, test.right.start)
    assert middle is not None
    operator = _OPPOSITE[" ".join(middle.group().split())]
    return code.text[test.start : middle.start()] + operator + code.text[middle.end() : test.end]


_LEAVES = (ir.Return, ir.Break, ir.Continue)


@dataclass(frozen=True, slots=True)
class Condition:
    """A test that comes out as ``taken`` wherever the later place is reached."""

    test: ir.Expr
    taken: bool

    def text(self, code: Code) -> str:
        return code.slice(self.test) if self.taken else negated(code, self.test)


def conditions(
    code: Code, first: ir.Stmt, later: ir.Node, known: Collection[ir.Node]
) -> Iterator[Condition]:
    """The tests that are made from ``first`` on, those of ``known`` statements left out.

    Raises:
        NoFixError: a statement on the way may leave in another way than by an ``if`` of its own.
    """
    inner = later
    for above in code.ancestors(later):
        for statement in _before(code, first, inner):
            if statement not in known:
                yield from _past(code, statement)
        if isinstance(above, ir.Function):
            return
        if isinstance(above, ir.If) and above.start >= first.start and above not in known:
            yield from _around(above, inner)
        inner = above


def runs_once(code: Code, statement: ir.Stmt) -> bool:
    """Whether a statement is in no function, which may be called often, and in no loop."""
    around = code.ancestors(statement)
    return not any(isinstance(above, (ir.For, ir.While, ir.Function)) for above in around)


def _around(branch: ir.If, inner: ir.Node) -> Iterator[Condition]:
    if inner in branch.body or inner in branch.orelse:
        yield Condition(branch.test, inner in branch.body)


def _before(code: Code, first: ir.Stmt, node: ir.Node) -> list[ir.Stmt]:
    """The statements of the block of ``node`` that run before it, from ``first`` on."""
    if not isinstance(node, STATEMENTS):
        return []
    block = code.block(node).statements  # type: ignore[arg-type]  # STATEMENTS are the types of Stmt
    return [each for each in block if first.start <= each.start < node.start]


def _past(code: Code, statement: ir.Stmt) -> Iterator[Condition]:
    leaving = [node for node in ir.walk(statement) if _leaves(code, node, statement)]
    if not leaving:
        return
    plain = isinstance(statement, ir.If) and not statement.orelse
    if not plain or not isinstance(statement, ir.If) or leaving != [statement.body[-1]]:
        raise NoFixError(f"`{code.short(statement)}` may leave the function first")
    yield Condition(statement.test, False)


def _leaves(code: Code, node: ir.Node, statement: ir.Stmt) -> bool:
    """Whether ``node`` leaves the block of ``statement``, in which it is."""
    inside = [above for above in code.ancestors(node) if above.start >= statement.start]
    inside = [above for above in inside if above.end <= statement.end]
    if not isinstance(node, _LEAVES) or any(isinstance(a, ir.Function) for a in inside):
        return False
    in_loop = any(isinstance(above, (ir.For, ir.While)) for above in inside)
    return isinstance(node, ir.Return) or not in_loop
