"""Imports that a migration has left unused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import bindings, orphans
from fsdplint.migrate.step import Change, Context, Found, Step


def unused_imports(words: tuple[str, ...], is_replaced: Callable[[str], bool]) -> Step:
    """Return a step that removes unused imports of names that the migration replaces.

    Args:
        words: what one of is in the text of each file with such an import.
        is_replaced: whether a full name is one of them.
    """

    def step(context: Context) -> Iterator[Found]:
        for code in context.codes(*words):
            for binding in bindings(code):
                if is_replaced(binding.target):
                    yield from _removed(code, binding.name, binding.statement)

    return step


def _removed(code: Code, name: str, statement: ir.Import | ir.ImportFrom) -> Iterator[Found]:
    if len(re.findall(rf"\b{re.escape(name)}\b", code.text)) > len(
        re.findall(rf"\b{re.escape(name)}\b", code.slice(statement))
    ):
        return
    edits = orphans(code, name, [])
    if edits:
        span = code.edit(statement.start, statement.end, "").span
        yield Change(span, f"remove the import of `{name}`", tuple(edits))
