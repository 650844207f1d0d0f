"""`DataParallel(model)` to the model itself, which is sharded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.ddp import DATA_PARALLEL
from fsdplint.migrate.single.launch import is_distributed
from fsdplint.migrate.step import Change, Context, Found, attempt


def data_parallel(context: Context) -> Iterator[Found]:
    """Yield a change for each call of `DataParallel`."""
    if is_distributed(context):
        return
    for code in context.codes("DataParallel"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == DATA_PARALLEL:
                yield from attempt(code, node, partial(_unwrapped, code, node))


def _unwrapped(code: Code, call: ir.Call) -> Change:
    module = module_argument(call)
    if module is None:
        raise NoFixError("its module does not show; remove `DataParallel` by hand")
    statement = code.statement(call)
    text = code.slice(module.value)
    edit = code.edit(call.start, call.end, text)
    rebinds = isinstance(statement, ir.Assign) and statement.value is call
    if rebinds and isinstance(statement, ir.Assign) and dotted(statement.targets[0]) == text:
        block = code.block(statement)
        if len(block.statements) > 1:
            edit = code.delete_lines(*code.extent(statement))
        elif isinstance(block.owner, ir.If) and not block.owner.orelse:
            edit = code.delete_lines(*code.extent(block.owner))
    return Change(code.span(call), "remove `DataParallel`: each process has one GPU", (edit,))
