"""Methods that call the forward of their own object, and so bypass its hooks."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.names import dotted
from fsdplint.migrate.changed_in_forward import methods_of, reached_by_forward
from fsdplint.migrate.single.rank_zero import start
from fsdplint.migrate.step import Change, Context, Found

_FORWARD = "self.forward"
_WHAT = "call `self` instead of its `forward`"


def own_forwards(context: Context) -> Iterator[Found]:
    """Yield a change for each such call, whatever class the program makes its model of.

    Traces follow one of the classes that a test chooses from.
    """
    if start(context) is None:
        return
    for code in context.codes(f"{_FORWARD}("):
        for cls in (node for node in code.walk("class") if isinstance(node, ir.ClassDef)):
            methods = methods_of(code, cls)
            others = methods.keys() - {f.name for f in reached_by_forward(methods)}
            for name in sorted(others) if "forward" in methods else ():
                for node in code.nodes_of(methods[name]):
                    if isinstance(node, ir.Call) and dotted(node.func) == _FORWARD:
                        edit = code.edit(node.func.start, node.func.end, "self")
                        yield Change(code.span(node), _WHAT, (edit,))
