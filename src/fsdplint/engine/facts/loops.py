"""Which loops a place is run in: what stands later in one comes before the next iteration."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program


def loops_around(program: Program, site: Site) -> frozenset[ir.Node]:
    """The loops around a place, in its own function and in those that called it."""
    return frozenset(
        above
        for path, node in site.frames()
        for above in program.tree(path).ancestors(node)
        if isinstance(above, (ir.For, ir.While))
    )


def share_loop(program: Program, one: Site, other: Site) -> bool:
    """Whether some loop runs both places in each iteration."""
    return bool(loops_around(program, one) & loops_around(program, other))
