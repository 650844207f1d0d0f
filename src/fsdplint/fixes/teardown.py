"""The end of a process group at the end of the function that made it."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports

_PLAIN = (ir.Name, ir.Attribute, ir.Constant, ir.Collection)


@builder
def destroy_at_end(
    code: Code, last: ir.Stmt, unused: ir.FunctionDef | None, *, perhaps: bool
) -> Fix:
    """Destroys the group behind ``last``, or before it where it returns.

    Args:
        unused: a function of the same file that does so.
        perhaps: there may be no group after all.
    """
    require_exact(code)
    if not code.alone(last):
        raise NoFixError(f"`{code.short(last)}` shares its line with other code")
    returns = isinstance(last, (ir.Return, ir.Raise))
    if isinstance(last, ir.Return) and not (last.value is None or isinstance(last.value, _PLAIN)):
        raise NoFixError(f"`{code.short(last)}` is the last that happens")
    imports = Imports(code, last)
    callee = _callable(code, unused)
    callee = callee or imports.name("torch.distributed", "destroy_process_group")
    indent = code.indentation(last)
    line = f"{indent}{callee}(){code.newline}"
    if perhaps:
        test = imports.name("torch.distributed", "is_initialized")
        line = f"{indent}if {test}():{code.newline}{code.unit}{line}"
    at = code.extent(last)[0] if returns else code.after(last)
    edits = (code.insert_lines(at, line), *imports.edits())
    return Fix(f"call `{callee}` at the end", Safety.UNSAFE, edits)


def _callable(code: Code, unused: ir.FunctionDef | None) -> str | None:
    if unused is None or unused.function.parameters:
        return None
    return unused.function.name if unused in code.module.body else None
