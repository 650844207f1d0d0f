"""Questions to the user, which each rank would ask."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.knowledge.launch import ASKS_USER
from fsdplint.migrate.single.launch import is_of_another_script
from fsdplint.migrate.single.rank_zero import is_guarded
from fsdplint.migrate.step import Context, Found, kept

_WHY = "each rank would wait for an answer, and get one of its own; take an option instead by hand"


def terminal(context: Context) -> Iterator[Found]:
    """Yield each call that reads from the terminal."""
    for code in context.codes(*ASKS_USER):
        for node in ir.walk(code.module):
            name = code.slice(node.func) if isinstance(node, ir.Call) else ""
            other = is_of_another_script(context, code, node)
            if name in ASKS_USER and not other and not is_guarded(code, node):
                yield kept(code, node, _WHY)
