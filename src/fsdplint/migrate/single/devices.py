"""The GPU of each rank instead of the first one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.migrate.single.launch import is_distributed
from fsdplint.migrate.step import Change, Context, Found, Kept

_INDEXED = re.compile(r"cuda:\d+")
_SET = "torch.cuda.set_device"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_WHAT = "use the rank's GPU, which is the current one"


def devices(context: Context) -> Iterator[Found]:
    """Yield a change for each place that names one GPU."""
    if is_distributed(context):
        return
    for code in context.codes("cuda", "CUDA", ".to("):
        for node in ir.walk(code.module):
            span = code.edit(node.start, node.end, "").span
            try:
                edit = _edit(context, code, node)
            except NoFixError as reason:
                yield Kept(span, f"`{code.short(node)}`", str(reason))
            else:
                if edit is not None:
                    yield Change(span, _WHAT, (edit[0],), edit[1])


def _edit(context: Context, code: Code, node: ir.Node) -> tuple[Edit, tuple[Imports, ...]] | None:
    if isinstance(node, ir.Constant) and _INDEXED.fullmatch(str(node.value)):
        quote = code.slice(node)[-1]
        return code.edit(node.start, node.end, f"{quote}cuda{quote}"), ()
    if isinstance(node, ir.FormattedString) and node.literals[0] == "cuda:":
        if len(node.values) != 1 or node.literals[-1]:
            raise NoFixError("it names one GPU; use `cuda`, the rank's own, by hand")
        return code.edit(node.start, node.end, '"cuda"'), ()
    if isinstance(node, ir.Constant) and node.value == _VISIBLE:
        raise NoFixError("all ranks would see the same GPUs; leave it to the launcher")
    if not isinstance(node, ir.Call):
        return None
    if context.name(code, node.func) == _SET:
        imports = Imports(code, node)
        local = f'int({imports.module("os", "os")}.environ["LOCAL_RANK"])'
        if code.slice(node.args[0].value) == local:
            return None
        return code.edit(node.args[0].start, node.args[0].end, local), (imports,)
    if isinstance(node.func, ir.Attribute) and node.func.attr == "cuda" and node.args:
        first = node.args[0]
        if first.keyword in (None, "device") and not _is_flag(first.value):
            following = node.args[1].start if len(node.args) > 1 else first.end
            return code.edit(first.start, following, ""), ()
    if isinstance(node.func, ir.Attribute) and node.func.attr == "to" and node.args:
        _check_number(code, node.args[0].value)
    return None


def _is_flag(value: ir.Expr) -> bool:
    return isinstance(value, ir.Constant) and isinstance(value.value, bool)


def _check_number(code: Code, value: ir.Expr) -> None:
    """Raise ``NoFixError`` if a device is a number, which is the same GPU for all ranks."""
    known = code.assigned(value) if isinstance(value, ir.Name) else [value]
    for each in known:
        if isinstance(each, ir.Constant) and type(each.value) is int:
            raise NoFixError("all ranks would use the same GPU; use `cuda`, the rank's own, by hand")
