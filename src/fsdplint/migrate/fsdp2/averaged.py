"""Programs that change the parameters of one model by those of another, as averages of weights."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.tensors import IN_PLACE
from fsdplint.migrate.step import Context

_LISTS = ("parameters", "named_parameters")
# Calls that hand on what they are given.
_COLLECTS = frozenset({"OrderedDict", "dict", "enumerate", "list", "tuple", "zip"})


def averages_weights(context: Context) -> bool:
    """Return whether a function of the program changes parameters in place by other ones."""
    return any(
        _averages(code, code.module) or any(_averages(code, each) for each in code.functions)
        for code in context.codes(*_LISTS)
    )


def _averages(code: Code, scope: ir.Function | ir.Module) -> bool:
    nodes = code.nodes_of(scope)
    lists = sum(1 for node in nodes if isinstance(node, ir.Call) and _is_list(code, node))
    return lists > 1 and any(_changes(code, node) for node in nodes)


def _is_list(code: Code, call: ir.Call) -> bool:
    """True if a call gives a model's parameters to a loop or a collection, not to an optimizer."""
    parent = code.parent(call)
    around = code.parent(parent) if isinstance(parent, ir.Argument) else None
    taken = isinstance(around, ir.Call) and ir.last_name(around.func) in _COLLECTS
    listed = isinstance(parent, (ir.For, ir.Clause, ir.Assign)) or taken
    return ir.last_name(call.func) in _LISTS and listed


def _changes(code: Code, node: ir.Node) -> bool:
    """True if a node changes a tensor, or a list of tensors, but no gradient."""
    if isinstance(node, ir.Assign):
        return any(isinstance(each, ir.Attribute) and each.attr == "data" for each in node.targets)
    name = ir.last_name(node.func) if isinstance(node, ir.Call) else ""
    changes = name in IN_PLACE or (name.startswith("_foreach_") and name.endswith("_"))
    return changes and isinstance(node, ir.Call) and ".grad" not in code.slice(node.func)
