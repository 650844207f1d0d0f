"""``model.forward(x)`` to ``model(x)``, so that the hooks that gather parameters run."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder


@builder
def call_module(code: Code, forward: ir.Attribute, safety: Safety) -> Fix:
    """Drops ``.forward`` from a bound method, be it called or passed on."""
    require_exact(code)
    inner = forward.value.func if isinstance(forward.value, ir.Call) else None
    if isinstance(inner, ir.Name) and inner.id == "super":
        raise NoFixError("`super().forward` has no module of its own to call")
    parent = code.parent(forward)
    if isinstance(parent, (ir.Assign, ir.Delete)) and forward in parent.targets:
        raise NoFixError(f"`{code.short(forward)}` is assigned, not called")
    dot = code.text.rindex(".", forward.value.end, forward.end)
    between = code.text[forward.value.end : dot]
    kept = between if code.comments(forward.value.end, dot) else between.rstrip(" \t\f\r\n\\")
    edit = code.edit(forward.value.end + len(kept), forward.end, "")
    title = f"call `{code.short(forward.value)}` instead of its `forward`"
    return Fix(title, safety, (edit,))
