"""The optimizer built below the sharding, from the parameters that training will use."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import move_below


def build_after_sharding(
    code: Code, optimizer: ir.Call, captures: Sequence[ir.Node], last_sharding: ir.Node
) -> Fix | Declined:
    """Moves an optimizer's construction, and the ``captures`` of its parameters, below sharding.

    An optimizer that is built below already, from parameters captured above, stays.

    Args:
        optimizer: the construction, or the call in this function that leads to it.
        captures: the expressions of the same function that took the parameters.
        last_sharding: the last call of the same function that shards the model.
    """
    call = last_sharding.func if isinstance(last_sharding, ir.Call) else last_sharding
    title = f"build the optimizer after the last `{code.short(call)}`"
    early = [node for node in (optimizer, *captures) if node.start < last_sharding.start]
    if not early:
        return Declined(f"`{code.short(optimizer)}` stands below the sharding already")
    return move_below(code, early[0], last_sharding, title, Safety.UNSAFE, early[1:])
