"""Variables that Python code sets, by which accelerate shards with FSDP1."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.accelerate_variables import SWITCH, VERSION
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    f"accelerate shards with FSDP1 by this variable; set `{VERSION}` to 2 and the variables that "
    "FSDP2 reads by hand"
)


def environment(context: Context) -> Iterator[Found]:
    """Yield each place that turns FSDP on, in a program that chooses no version."""
    if any(True for _ in context.codes(VERSION)):
        return
    for code in context.codes(SWITCH):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Constant) and node.value == SWITCH and _is_set(code, node):
                yield kept(code, code.statement(node), _WHY)


def _is_set(code: Code, name: ir.Constant) -> bool:
    """True if a variable is assigned, a key of a dict, or given with a value."""
    parent = code.parent(name)
    if isinstance(parent, ir.Subscript):
        assign = code.parent(parent)
        return isinstance(assign, ir.Assign) and parent in assign.targets
    call = code.parent(parent) if isinstance(parent, ir.Argument) else None
    sets = isinstance(call, ir.Call) and ir.last_name(call.func) in ("setdefault", "putenv")
    return sets or isinstance(parent, ir.DictDisplay)
