"""Reads of the wrapper's module below a `try`, which hides that there is no wrapper any more."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.fsdp1_api_on_fsdp2_model import drop_wrapper, fsdp1_uses


def caught_unwraps(context: Context) -> Iterator[Found]:
    """Yield a change for each `.module` of a sharded model whose error the code catches."""
    found = {
        use.node: use for use in fsdp1_uses(context.program, caught=True) if use.name in WRAPPED
    }
    for node, use in found.items():
        code = Code.of(context.program.tree(use.site.path))
        fix = drop_wrapper(code, node, Safety.UNSAFE)
        if isinstance(fix, Fix):
            yield Change(code.span(node), fix.title, fix.edits)
