"""`with enable_wrap(wrapper_cls=FSDP, …):` around calls of `wrap(module)`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.modules import ENABLE_WRAP, WRAP_CALL
from fsdplint.knowledge.names import FSDP1, FULLY_SHARD
from fsdplint.migrate.fsdp2.filled import passed_on
from fsdplint.migrate.fsdp2.policies import BUFFERS
from fsdplint.migrate.fsdp2.settings import settings_of
from fsdplint.migrate.step import Change, Context, Found, attempt


def contexts(context: Context) -> Iterator[Found]:
    """Yield a change for each `enable_wrap` with all its `wrap` calls in its own block."""
    for code in context.codes("enable_wrap"):
        for node in code.walk("enable_wrap"):
            if not isinstance(node, ir.With) or len(node.items) != 1:
                continue
            made = node.items[0].value
            if not isinstance(made, ir.Call) or context.name(code, made.func) != ENABLE_WRAP:
                continue
            yield from attempt(code, made, partial(_unwrapped, context, code, node, made))


def _unwrapped(context: Context, code: Code, block: ir.With, made: ir.Call) -> Change:
    change = passed_on(code, made)
    if change is not None:
        return change
    classes = [each.value for each in made.args if each.keyword == "wrapper_cls"]
    if [context.name(code, each) for each in classes] != [FSDP1]:
        raise NoFixError("it does not name `FullyShardedDataParallel`; shard the modules by hand")
    calls = [
        node
        for each in block.body
        for node in ir.walk(each)
        if isinstance(node, ir.Call) and context.name(code, node.func) == WRAP_CALL
    ]
    if not calls or any(len(call.args) != 1 for call in calls):
        raise NoFixError(
            "its block has no plain `wrap(module)`; shard the modules where they are built, by hand"
        )
    imports = Imports(code, made)
    shard = imports.name(*FULLY_SHARD.rsplit(".", 1))
    settings = settings_of(context, code, made, "", imports)
    if settings.after:
        raise NoFixError("it synchronizes the modules one by one; shard them by hand")
    own = {**settings.blocks, **settings.shared}
    keywords = "".join(f", {name}={text}" for name, text in own.items())
    edits: list[Edit] = [code.edit(call.func.start, call.func.end, shard) for call in calls]
    edits += [code.edit(call.args[0].end, call.args[0].end, keywords) for call in calls if keywords]
    indent, newline = code.indentation(block), code.newline
    head = "".join(f"{indent}{line}{newline}" for line in settings.before)
    edits += code.unwrapped(block, head)
    span = code.span(made)
    what = "shard the modules of the block with `fully_shard`"
    return Change(span, what, tuple(edits), (imports,), BUFFERS if settings.buffers else "")
