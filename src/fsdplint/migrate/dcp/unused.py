"""Options and imports for gathering that the migration leaves without a use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import bindings, dropped
from fsdplint.knowledge.checkpoints import HELPERS, STATE_OPTIONS
from fsdplint.migrate.step import Change, Context, Found


def unused(context: Context) -> Iterator[Found]:
    """Yield a change for each unused definition, or if a file has none, for its imports."""
    for code in context.codes("StateDictOptions", HELPERS):
        changes = list(_definitions(context, code))
        yield from changes or _imports(code)


def _definitions(context: Context, code: Code) -> Iterator[Change]:
    for node in code.walk("StateDictOptions"):
        target = node.targets[0] if isinstance(node, ir.Assign) else None
        if not isinstance(node, ir.Assign) or not isinstance(target, ir.Name):
            continue
        made = isinstance(node.value, ir.Call)
        if not made or context.name(code, node.value.func) != STATE_OPTIONS:  # type: ignore[union-attr]
            continue
        scope = code.function(node) or code.module
        names = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == target.id]
        if len(names) == 1 and len(code.block(node).statements) > 1:
            try:
                edit = code.delete_lines(*code.extent(node))
            except NoFixError:
                continue
            yield Change(edit.span, f"remove `{target.id}`, which nothing uses", (edit,))


def _imports(code: Code) -> Iterator[Change]:
    """Yield the removal of one name of each import; the others come in later passes."""
    taken: set[ir.Node] = set()
    for binding in bindings(code):
        if binding.statement in taken or not binding.target.startswith(f"{HELPERS}."):
            continue
        start, end = binding.statement.start, binding.statement.end
        rest = code.text[:start] + code.text[end:]
        edit = next(dropped(code, binding), None)
        if edit is not None and not re.search(rf"\b{re.escape(binding.name)}\b", rest):
            taken.add(binding.statement)
            yield Change(edit.span, f"remove the import of `{binding.name}`", (edit,))
