"""A model copied before it is sharded."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix
from fsdplint.fixes.add_before import add_before
from fsdplint.fixes.code import Code
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.names import LISTING, dotted


def copy_first(code: Code, copy: ir.Node, first: ir.Node) -> Fix | Declined:
    """Moves the statement of ``copy`` above that of ``first``, which begins the sharding."""
    statement = code.statement(copy)
    if not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        return Declined(f"`{code.short(statement)}` gives the copy no name")
    name = dotted(statement.targets[0])
    if name is None or _compared(code, copy, name):
        return Declined("the copy's tensors are used beside shards, so it has to be sharded alike")
    return add_before(code, copy, first)


def _compared(code: Code, copy: ir.Node, name: str) -> bool:
    """Whether the parameters or the state of the copy are listed anywhere, or it is handed on."""
    last = name.rpartition(".")[2]
    inside = set(ir.walk(copy))
    used = [
        node.value
        for node in ir.walk(code.module)
        if (isinstance(node, ir.Attribute) and node.attr in LISTING)
        or (isinstance(node, ir.Argument) and node not in inside)
    ]
    return any((dotted(value) or "").rpartition(".")[2] == last for value in used)
