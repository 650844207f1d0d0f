"""The local rank of the environment for an option that no launcher passes."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports


@builder
def default_from_environment(code: Code, option: ir.Node, dashed: str) -> Fix:
    """Takes ``LOCAL_RANK`` for the default, and spells the option as ``dashed`` too."""
    require_exact(code)
    assert isinstance(option, ir.Call)
    if any(each.star for each in option.args):
        raise NoFixError(f"`{code.short(option)}` is not all written here")
    imports = Imports(code, option)
    module = imports.module("os", "os")
    default = next((each for each in option.args if each.keyword == "default"), None)
    if default is None:
        at = option.args[-1].end
        edits = [code.edit(at, at, f', default=int({module}.environ["LOCAL_RANK"])')]
    else:
        old = default.value
        text = f'int({module}.environ.get("LOCAL_RANK", {code.slice(old)}))'
        edits = [code.edit(old.start, old.end, text)]
    first = option.args[0]
    if dashed not in [code.slice(each)[1:-1] for each in option.args]:
        quote = code.slice(first)[-1]
        edits.append(code.edit(first.start, first.start, f"{quote}{dashed}{quote}, "))
    title = "take the local rank from `LOCAL_RANK`"
    return Fix(title, Safety.SAFE, (*edits, *imports.edits()))


@builder
def own_default_from_environment(code: Code, option: ir.Node, default: ir.Expr | None) -> Fix:
    """Takes ``LOCAL_RANK`` for the default of a field, a parameter, a flag or click's option."""
    require_exact(code)
    if default is None:
        raise NoFixError(f"`{code.short(option)}` has no default")
    module = (imports := Imports(code, option)).module("os", "os")
    text = f'int({module}.environ.get("LOCAL_RANK", {code.slice(default)}))'
    edits = (code.edit(default.start, default.end, text), *imports.edits())
    return Fix("take the local rank from `LOCAL_RANK`", Safety.SAFE, edits)
