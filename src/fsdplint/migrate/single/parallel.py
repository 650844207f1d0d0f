"""`DataParallel(model)`, or `data_parallel(model, x)`, to the model itself, which is sharded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.ddp import DATA_PARALLEL, DATA_PARALLEL_FORWARD
from fsdplint.migrate.single.launch import is_distributed
from fsdplint.migrate.step import Change, Context, Found, attempt

_WHAT = "remove `DataParallel`: each process has one GPU"


def data_parallel(context: Context) -> Iterator[Found]:
    """Yield a change for each call of `DataParallel`, and of the function that does the same."""
    if is_distributed(context):
        return
    for code in context.codes("DataParallel", "data_parallel"):
        for node in ir.walk(code.module):
            name = context.name(code, node.func) if isinstance(node, ir.Call) else ""
            if isinstance(node, ir.Call) and name == DATA_PARALLEL:
                yield from attempt(code, node, partial(_unwrapped, code, node))
            elif isinstance(node, ir.Call) and name == DATA_PARALLEL_FORWARD:
                yield from attempt(code, node, partial(_called, code, node))


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
    return Change(code.span(call), _WHAT, (edit,))


def _called(code: Code, call: ir.Call) -> Change:
    """Replace ``data_parallel(module, inputs)`` by a call of the module."""
    module, inputs = argument_of(call, 0, "module"), argument_of(call, 1, "inputs")
    if module is None or inputs is None or len(call.args) > 3:
        raise NoFixError("it takes more than a module and its inputs; call the module by hand")
    given, function = code.slice(inputs.value), code.function(call)
    rest = [p.name for p in (function.parameters if function else ()) if p.kind == "*"]
    if isinstance(inputs.value, ir.Collection):
        given = given.removeprefix("(").removesuffix(")")
    elif given in rest:
        given = f"*{given}"
    edit = code.edit(call.start, call.end, f"{code.slice(module.value)}({given})")
    return Change(code.span(call), _WHAT, (edit,))
