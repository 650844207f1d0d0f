"""The GPU of each rank instead of the first one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, Shard
from fsdplint.engine.interpreter.values import Const
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.launch import DEVICE_CONTEXT, DEVICE_METHODS, SET_DEVICE, TORCH_DEVICE
from fsdplint.migrate.single.launch import is_distributed
from fsdplint.migrate.step import Change, Context, Found, attempt

_INDEXED = re.compile(r"cuda:\d+")
_NUMBER = re.compile(r"gpu|(gpu|cuda|device)_?(id|idx|index|num|number|no)", re.IGNORECASE)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_WHAT = "use the rank's GPU, which is the current one"


def devices(context: Context) -> Iterator[Found]:
    """Yield a change for each place that names one GPU."""
    if is_distributed(context):
        return
    for code in context.codes("cuda", "CUDA", ".to("):
        for node in ir.walk(code.module):
            yield from attempt(code, node, partial(_change, context, code, node))


def numbered(context: Context) -> Iterator[Found]:
    """Yield a change for each move to a GPU whose number is the same on all ranks."""
    program = context.program
    seen: dict[ir.Node, Call] = {}
    for trace in program.traces:
        for call in trace.calls(*DEVICE_METHODS):
            given = call.argument(0, "device")
            if isinstance(given, Const) and type(given.value) is int and any(trace.of(Shard)):
                seen[call.site.node] = call
    for node, call in seen.items():
        code = Code.of(program.tree(call.site.path))
        argument = argument_of(node, 0, "device") if isinstance(node, ir.Call) else None
        if argument is not None:
            edit = code.edit(argument.value.start, argument.value.end, '"cuda"')
            yield Change(program.span(call.site), _WHAT, (edit,))


def _change(context: Context, code: Code, node: ir.Node) -> Change | None:
    if isinstance(node, ir.Assign) and _is_visible(node.targets[0]):
        edit = _seen(code, node)
        what = "let the ranks see all GPUs; choose some in the environment of `torchrun`"
        return None if edit is None else Change(code.span(node), what, (edit,))
    found = _edit(context, code, node)
    return None if found is None else Change(code.span(node), _WHAT, (found[0],), found[1])


def _edit(context: Context, code: Code, node: ir.Node) -> tuple[Edit, tuple[Imports, ...]] | None:
    if isinstance(node, ir.Constant) and _INDEXED.fullmatch(str(node.value)):
        quote = code.slice(node)[-1]
        return code.edit(node.start, node.end, f"{quote}cuda{quote}"), ()
    if isinstance(node, ir.FormattedString) and node.literals[0] == "cuda:":
        if len(node.values) != 1 or node.literals[-1]:
            raise NoFixError("it names one GPU; use `cuda`, the rank's own, by hand")
        return code.edit(node.start, node.end, '"cuda"'), ()
    if _is_composed(node):
        if isinstance(code.parent(node), ir.BinOp):
            raise NoFixError("it names one GPU; use `cuda`, the rank's own, by hand")
        return code.edit(node.start, node.end, '"cuda"'), ()
    if isinstance(node, ir.Constant) and node.value == _VISIBLE:
        statement = code.statement(node)
        if isinstance(statement, ir.Assign) and _is_visible(statement.targets[0]):
            return None
        raise NoFixError("all ranks would see the same GPUs; leave it to the launcher")
    if not isinstance(node, ir.Call):
        return None
    if context.name(code, node.func) == SET_DEVICE:
        imports = Imports(code, node)
        local = f'int({imports.module("os", "os")}.environ["LOCAL_RANK"])'
        if code.slice(node.args[0].value) == local:
            return None
        return code.edit(node.args[0].start, node.args[0].end, local), (imports,)
    if context.name(code, node.func) == TORCH_DEVICE and len(node.args) == 2:
        return code.edit(node.args[0].end, node.args[1].end, ""), ()
    if context.name(code, node.func) == DEVICE_CONTEXT and node.args:
        imports = Imports(code, node)
        current = f"{imports.module('torch', 'torch')}.cuda.current_device()"
        if code.slice(node.args[0].value) == current:
            return None
        return code.edit(node.args[0].start, node.args[0].end, current), (imports,)
    if ir.last_name(node.func) == "to" and any(_is_number(code, each.value) for each in node.args):
        raise NoFixError("this is the number of one GPU; use `cuda`, the rank's own, by hand")
    if isinstance(node.func, ir.Attribute) and node.func.attr == "cuda" and node.args:
        first = node.args[0]
        if first.keyword in (None, "device") and not _is_flag(first.value):
            following = node.args[1].start if len(node.args) > 1 else first.end
            return code.edit(first.start, following, ""), ()
    return None


def _is_composed(node: ir.Node) -> bool:
    """True for ``"cuda:" + number``, ``"cuda:%d" % number`` and ``"cuda:{}".format(number)``."""
    text: ir.Node | None = None
    if isinstance(node, ir.BinOp) and node.op in ("Add", "Modulo"):
        text = node.left
    elif isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
        text = node.func.value if node.func.attr == "format" else None
    return isinstance(text, ir.Constant) and str(text.value).startswith("cuda:")


def _is_number(code: Code, value: ir.Expr) -> bool:
    """Whether a device is an option or variable that by its name is the number of a GPU."""
    values = (code.assigned(value) or [value]) if isinstance(value, ir.Name) else [value]
    arms = [
        arm
        for each in values
        for arm in ((each.body, each.orelse) if isinstance(each, ir.Conditional) else (each,))
    ]
    return any(_NUMBER.fullmatch(ir.last_name(arm)) for arm in arms)


def _is_visible(target: ir.Expr) -> bool:
    index = target.index if isinstance(target, ir.Subscript) else None
    return isinstance(index, ir.Constant) and index.value == _VISIBLE


def _seen(code: Code, assign: ir.Assign) -> Edit | None:
    """Return the edit that removes a fixed choice of GPUs."""
    if isinstance(assign.value, (ir.Name, ir.Attribute)):
        return None  # the user chooses, and can choose several
    if not isinstance(assign.value, ir.Constant):
        raise NoFixError("all ranks would see the same GPUs; leave it to the launcher")
    if len(code.block(assign).statements) == 1:
        raise NoFixError("all ranks would see the same GPUs; leave it to the launcher")
    return code.delete_lines(*code.extent(assign))


def _is_flag(value: ir.Expr) -> bool:
    return isinstance(value, ir.Constant) and isinstance(value.value, bool)
