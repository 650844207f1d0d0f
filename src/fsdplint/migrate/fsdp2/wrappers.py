"""`FSDP(model, …)` to `fully_shard(model, …)`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import FSDP1, FULLY_SHARD
from fsdplint.migrate.step import Change, Context, Found, Kept


def wrappers(context: Context) -> Iterator[Found]:
    """Yield a change for each call of FSDP1's class."""
    for code in context.codes("FullyShardedDataParallel", "FSDP"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == FSDP1:
                span = code.edit(node.start, node.end, "").span
                try:
                    yield _sharded(code, node)
                except NoFixError as reason:
                    yield Kept(span, f"`{code.short(node)}`", str(reason))


def _sharded(code: Code, call: ir.Call) -> Change:
    imports = Imports(code, call)
    name = imports.name(*FULLY_SHARD.rsplit(".", 1))
    edits = (code.edit(call.func.start, call.func.end, name),)
    what = f"shard `{code.short(call.args[0].value)}` with `fully_shard`"
    return Change(code.edit(call.start, call.end, "").span, what, edits, (imports,))
