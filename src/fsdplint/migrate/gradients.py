"""Gradients that a model clears between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.facts.cleared_gradients import gathered_clears, optimizer_of
from fsdplint.finding import Fix
from fsdplint.fixes.clear_gradients import clear_by_optimizer
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Change, Context, Found, kept

_WHY = "between forward and backward, the root's own gradients are out of the model's reach"


def cleared(context: Context) -> Iterator[Found]:
    """Yield a change for each place where a root's parameters are gathered.

    The model has the gathered parameters then; the gradients are those of the sharded ones, which
    the optimizer has.
    """
    found = {clear.event.site.node: clear for clear in gathered_clears(context.program)}
    for node, clear in found.items():
        path = clear.event.site.path
        if path in context.files:
            code = Code.of(context.program.tree(path))
            made = clear_by_optimizer(code, node, optimizer_of(clear))
            if isinstance(made, Fix):
                yield Change(code.span(node), f"{made.title}: {_WHY}", made.edits)
            else:
                yield kept(code, node, f"{_WHY}: {made.reason}")
