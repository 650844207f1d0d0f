"""A training loop without the ``Join`` around it."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder


@builder
def without_join(code: Code, call: ir.Node, module: ir.Node | None) -> Fix:
    """Takes ``module`` from the list, or the whole context away where nothing is left in it."""
    require_exact(code)
    joined = call.args[0].value if isinstance(call, ir.Call) and call.args else None
    if module is not None and isinstance(joined, ir.Collection) and len(joined.elements) > 1:
        return _without_element(code, joined, module)
    statement = code.statement(call)
    if not isinstance(statement, ir.With) or [item.value for item in statement.items] != [call]:
        raise NoFixError(f"`{code.short(call)}` is no context of its own")
    first = statement.body[0]
    if not code.starts_line(statement) or not code.starts_line(first):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    start, inside = code.line_start(statement.start), code.line_start(first.start)
    if code.comments(start, inside):
        raise NoFixError("there is a comment on the context")
    extra = code.indentation(first).removeprefix(code.indentation(statement))
    edits = [code.edit(start, inside, "")]
    for line in code.code_lines(inside, code.after(statement)):
        if code.text.startswith(extra, line):
            edits.append(code.edit(line, line + len(extra), ""))
    return Fix("train without `Join`", Safety.UNSAFE, tuple(edits))


def _without_element(code: Code, joined: ir.Collection, module: ir.Node) -> Fix:
    elements = list(joined.elements)
    index = next((i for i, each in enumerate(elements) if each is module), None)
    if index is None:
        raise NoFixError("the list is made elsewhere")
    if index:
        edit = code.edit(elements[index - 1].end, module.end, "")
    else:
        edit = code.edit(module.start, elements[1].start, "")
    return Fix(f"join without `{code.short(module)}`", Safety.UNSAFE, (edit,))
