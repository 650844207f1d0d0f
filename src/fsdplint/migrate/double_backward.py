"""Gradients of gradients, which a sharded model does not have."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.migrate.step import Context, Found, kept

_KEYWORD = "create_graph"
_WHY = (
    "FSDP2 frees the gathered parameters in the first backward, so that a second one through its "
    "graph fails; train this model without sharding, or without a gradient of a gradient"
)


def double_backward(context: Context) -> Iterator[Found]:
    """Yield each backward whose graph is kept for another one through it."""
    for code in context.codes(_KEYWORD):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and any(map(_keeps_graph, node.args)):
                yield kept(code, node, _WHY)


def _keeps_graph(argument: ir.Argument) -> bool:
    value = argument.value
    off = isinstance(value, ir.Constant) and not value.value
    return argument.keyword == _KEYWORD and not off
