"""The text of a condition, and of its opposite as a person would write it."""

from __future__ import annotations

import re

from fsdplint.engine import ir
from fsdplint.fixes.code import Code

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
