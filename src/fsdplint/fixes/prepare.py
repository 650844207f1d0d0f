"""Two calls of ``accelerator.prepare`` made one, where the second stands."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.names import clash, names_in, written_between


@builder
def prepare_together(code: Code, calls: tuple[ir.Call, ir.Call]) -> Fix:
    """``a = x.prepare(a)`` and ``b = x.prepare(b)`` to ``a, b = x.prepare(a, b)``."""
    require_exact(code)
    first, second = sorted(calls, key=lambda call: call.start)
    above, below = _assignment(code, first), _assignment(code, second)
    if code.block(above) != code.block(below):
        raise NoFixError("the two calls are not made one after the other")
    if code.slice(first.func) != code.slice(second.func):
        raise NoFixError("the two calls are not of the same accelerator")
    given = [path for argument in first.args for path in names_in(argument.value).all]
    changed = clash(given, written_between(code, second, above.end, below.start))
    if changed is not None:
        raise NoFixError(f"`{changed}` changes between the two calls")
    target = below.targets[0]
    arguments = code.text[first.args[0].start : first.args[-1].end]
    edits = (
        code.delete_lines(*code.extent(above)),
        code.edit(target.start, target.start, f"{code.slice(above.targets[0])}, "),
        code.edit(second.args[0].start, second.args[0].start, f"{arguments}, "),
    )
    return Fix("prepare the model and its optimizer in one call", Safety.UNSAFE, edits)


def _assignment(code: Code, call: ir.Call) -> ir.Assign:
    """The statement of ``call``, if it does nothing but name what comes out of it."""
    statement = code.statement(call)
    plain = isinstance(statement, ir.Assign) and statement.value is call
    if not plain or not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        raise NoFixError(f"`{code.short(statement)}` does more than prepare")
    if not call.args or any(a.star or a.keyword is not None for a in call.args):
        raise NoFixError(f"the arguments of `{code.short(call)}` are not plain")
    if not code.alone(statement) or code.comments(call.start, call.end):
        raise NoFixError(f"`{code.short(statement)}` shares its lines with other code or comments")
    return statement
