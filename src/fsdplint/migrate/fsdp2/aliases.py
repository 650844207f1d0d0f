"""Other names of FSDP1's class: `Wrapper = FSDP`, `= partial(FSDP, …)`, `= FSDP if … else DDP`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.knowledge.names import FSDP1
from fsdplint.migrate.calls import FSDP1_WORDS, definition
from fsdplint.migrate.fsdp2.choices import is_class_choice
from fsdplint.migrate.fsdp2.unused import is_imported
from fsdplint.migrate.step import Change, Context, Found, attempt


def aliases(context: Context) -> Iterator[Found]:
    """Yield a change for each that names the class where the other name is used."""
    for code in context.codes(*FSDP1_WORDS):
        for node in code.walk("=", *FSDP1_WORDS):
            if isinstance(node, ir.Assign) and [*map(type, node.targets)] == [ir.Name]:
                value, given = node.value, _given(context, code, node.value)
                is_class = context.name(code, value) == FSDP1
                if given or is_class or is_class_choice(context, code, value):
                    yield from attempt(code, node, partial(_named, context, code, node, given))


def _given(context: Context, code: Code, value: ir.Expr) -> Sequence[ir.Argument]:
    """Return the class and its settings in a `partial`, nothing for any other value."""
    is_partial = (
        isinstance(value, ir.Call) and context.name(code, value.func) == "functools.partial"
    )
    given = value.args if isinstance(value, ir.Call) and is_partial else ()
    return given if given and context.name(code, given[0].value) == FSDP1 else ()


def _named(
    context: Context, code: Code, made: ir.Assign, given: Sequence[ir.Argument]
) -> Change | None:
    target = made.targets[0]
    assert isinstance(target, ir.Name)
    uses = [
        node
        for node in ir.walk(code.module)
        if isinstance(node, ir.Name) and node.id == target.id and node is not target
    ]
    if not uses:
        return None
    top = isinstance(code.parent(made), ir.Module)
    elsewhere = top and is_imported(context, code, target.id)
    if elsewhere or any(definition(code, use) is not made.value for use in uses):
        raise NoFixError(f"`{target.id}` may be used elsewhere; use the class itself there by hand")
    if code.is_rebound(made.value) or len(code.block(made).statements) == 1 or not code.alone(made):
        raise NoFixError(f"write out what `{target.id}` is where it is used, by hand")
    edits = [edit for use in uses for edit in _written_out(code, use, made.value, given)]
    edits.append(code.delete_lines(*code.extent(made)))
    what = f"use `{code.short(given[0].value if given else made.value)}` for `{target.id}`"
    return Change(code.span(made), what, tuple(edits))


def _written_out(
    code: Code, use: ir.Name, value: ir.Expr, given: Sequence[ir.Argument]
) -> Iterator[Edit]:
    if not given:
        text = code.slice(value)
        yield code.edit(
            use.start, use.end, f"({text})" if isinstance(value, ir.Conditional) else text
        )
        return
    call = code.parent(use)
    if not isinstance(call, ir.Call) or call.func is not use or len(call.args) == 0:
        raise NoFixError(f"`{use.id}` is not only called; call the class itself by hand")
    if any(not each.keyword and not each.star for each in (*given[1:], *call.args[1:])):
        raise NoFixError(f"`{use.id}` gets settings by position; name them, then migrate again")
    own = {each.keyword for each in call.args}
    settings = [each for each in given[1:] if each.star or each.keyword not in own]
    yield code.edit(use.start, use.end, code.slice(given[0].value))
    if settings:
        yield add_argument(code, call, ", ".join(map(code.slice, settings)))
