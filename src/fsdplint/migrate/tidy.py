"""Imports that a migration to FSDP2 leaves unused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Binding, bindings, dropped
from fsdplint.knowledge.ddp import CLASS, COMM_HOOKS, DATA_PARALLEL
from fsdplint.knowledge.names import DISTRIBUTED, FULLY_SHARD, canonical
from fsdplint.migrate.step import Change, Context, Found

# What a migration replaces, or has added to a file whose sharding a later step moved to another.
_NAMES = frozenset({CLASS, COMM_HOOKS, DATA_PARALLEL, DISTRIBUTED, FULLY_SHARD})


def unused_imports(context: Context) -> Iterator[Found]:
    """Yield the removal of one unused name of each import statement."""
    for code in context.codes("torch"):
        taken: set[ir.Node] = set()
        for binding in bindings(code):
            replaced = canonical(binding.target) in _NAMES and binding.root[0] == binding.name
            if replaced and binding.statement not in taken and _is_unused(code, binding):
                for edit in dropped(code, binding):
                    taken.add(binding.statement)
                    yield Change(edit.span, f"remove the import of `{binding.name}`", (edit,))
                    break


def _is_unused(code: Code, binding: Binding) -> bool:
    pattern = re.compile(rf"(?<![.\w]){re.escape(binding.name)}\b")
    statement = binding.statement
    text = code.text[: statement.start] + code.text[statement.end :]
    alone = len(code.block(statement).statements) > 1 and code.alone(statement)
    return alone and not code.looks_up_variables and not pattern.search(text)
