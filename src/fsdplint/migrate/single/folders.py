"""Folders that several ranks create at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Change, Context, Found, kept

_ONE, _ALL = "os.mkdir", "os.makedirs"
_EXISTS = "exist_ok"
_HANDLED = (
    "all ranks but one find this folder and run the handler of the error; create it on rank 0 only "
    "by hand"
)


def folders(context: Context) -> Iterator[Found]:
    """Yield a change for each call that fails if another rank has created the folder."""
    for code in context.codes("mkdir", "makedirs"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and not _is_allowed(node):
                edits = tuple(_edits(code, node, context.name(code, node.func)))
                if edits and _is_handled(code, node):
                    yield kept(code, node, _HANDLED)
                elif edits:
                    span = code.span(node)
                    yield Change(span, "let another rank create the folder first", edits)


def _is_handled(code: Code, call: ir.Call) -> bool:
    """True if the program does something where the folder is there already."""
    tries = (each for each in code.ancestors(call) if isinstance(each, ir.Try))
    around = next((t for t in tries if t.handlers and call.start < t.handlers[0].start), None)
    bodies = () if around is None else (handler.body for handler in around.handlers)
    return any(not isinstance(each, ir.Pass) for body in bodies for each in body)


def _is_allowed(call: ir.Call) -> bool:
    """True if the call may take the folder as it is; a third argument is ``exist_ok``."""
    names = {each.keyword for each in call.args}
    return _EXISTS in names or any(each.star for each in call.args) or len(call.args) > 2


def _edits(code: Code, call: ir.Call, name: str) -> Iterator[Edit]:
    if not isinstance(call.func, ir.Attribute):
        return
    method = not name and call.func.attr == "mkdir" and "pathlib" in code.text
    if method or name in (_ONE, _ALL):
        yield add_argument(code, call, f"{_EXISTS}=True")
    if name == _ONE:
        yield code.edit(call.func.value.end, call.func.end, ".makedirs")
