"""What ``Join`` is given, or a training loop without it."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import add_argument, without
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


@builder
def as_list(code: Code, joined: ir.Node) -> Fix:
    """Puts the one object that is given into a list."""
    edits = (
        code.edit(joined.start, joined.start, "["),
        code.edit(joined.end, joined.end, "]"),
    )
    # A name may stand for a list in another run.
    stated = isinstance(code.meaning(joined), ir.Call)  # type: ignore[arg-type]  # an argument
    safety = Safety.SAFE if stated else Safety.UNSAFE
    return Fix(f"join `[{code.short(joined)}]`", safety, edits)


@builder
def same_group(code: Code, model: ir.Call, optimizer: ir.Call) -> Fix:
    """Gives an optimizer the process group of the model whose gradients it gets."""
    require_exact(code)
    wanted, given = (
        next((each for each in call.args if each.keyword == "process_group"), None)
        for call in (model, optimizer)
    )
    if wanted is None:
        kept = [each for each in optimizer.args if each is not given]
        return Fix(
            "leave the optimizer to all ranks",
            Safety.UNSAFE,
            (*without(code, optimizer.args, kept),),
        )
    if code.scope(model) is not code.scope(optimizer) or model.start > optimizer.start:
        raise NoFixError(f"`{code.short(wanted.value)}` may be something else at the optimizer")
    if not isinstance(wanted.value, (ir.Name, ir.Attribute)):
        raise NoFixError(f"`{code.short(wanted.value)}` would be made twice")
    text = code.slice(wanted.value)
    if given is None:
        edit = add_argument(code, optimizer, f"process_group={text}")
    else:
        edit = code.edit(given.value.start, given.value.end, text)
    return Fix(f"give the optimizer `{text}` as well", Safety.UNSAFE, (edit,))
