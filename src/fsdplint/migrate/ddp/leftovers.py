"""What is left of DDP in a program after the migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.knowledge.ddp import CLASS
from fsdplint.migrate.changed_in_forward import changed_in_forward
from fsdplint.migrate.copies import mixed
from fsdplint.migrate.parameter_uses import parameter_uses
from fsdplint.migrate.reshards import left_open
from fsdplint.migrate.rules import within
from fsdplint.migrate.states import untaken
from fsdplint.migrate.step import Context, Found, Kept
from fsdplint.migrate.unreached import unreached


def leftovers(context: Context) -> Iterator[Found]:
    """Yield each use of DDP's class, weights that do not mix, and states that stay raw."""
    for code in context.codes("DistributedDataParallel", "DDP"):
        for node in ir.walk(code.module):
            if isinstance(node, (ir.Name, ir.Attribute)) and context.name(code, node) == CLASS:
                span = code.span(node)
                text = f"`{code.short(code.statement(node))}`"
                yield Kept(span, text, "no step knows how to change this use; change it by hand")
    yield from within(unreached)(context)
    yield from within(mixed)(context)
    yield from within(parameter_uses)(context)
    yield from within(left_open)(context)
    yield from changed_in_forward(context)
    yield from untaken(context)
