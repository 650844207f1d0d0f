"""``torch.inference_mode()`` to ``torch.no_grad()``."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports, orphans, qualified


@builder
def to_no_grad(code: Code, mode: ir.Node, safety: Safety) -> Fix:
    """Replaces a context or decorator that surely turns inference mode on."""
    require_exact(code)
    function = mode.func if isinstance(mode, ir.Call) else mode
    if not isinstance(function, (ir.Name, ir.Attribute)):
        raise NoFixError(f"`{code.short(mode)}` is not written as torch names it")
    imports = Imports(code, mode)
    named = isinstance(function, ir.Name) and qualified(code, function) == "torch.inference_mode"
    if named:
        text = imports.name("torch", "no_grad")
    elif isinstance(function, ir.Attribute):
        text = f"{code.slice(function.value)}.no_grad"
    else:
        raise NoFixError(f"`{code.short(mode)}` is not written as torch names it")
    called = "()" if isinstance(mode, ir.Call) else ""
    edits = [code.edit(mode.start, mode.end, text + called), *imports.edits()]
    if isinstance(function, ir.Name):
        edits += orphans(code, function.id, edits)
    title = "make no graph by `no_grad`, whose tensors a later forward can use"
    return Fix(title, safety, tuple(edits))
