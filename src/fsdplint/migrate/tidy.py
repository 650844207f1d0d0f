"""Imports that a migration to FSDP2 leaves unused or apart, and long lines that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Binding, bindings, dropped
from fsdplint.fixes.wrapping import WIDTH, items_of, wrapped
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.ddp import CLASS, COMM_HOOKS, DATA_PARALLEL
from fsdplint.knowledge.names import DISTRIBUTED, FULLY_SHARD, canonical
from fsdplint.migrate.step import Change, Context, Found, Step

# What a migration replaces, or has added to a file whose sharding a later step moved to another.
# What a gather or a load of a full state has, which programs before a migration do not.
FULL = ("StateDictOptions(full_state_dict=True", '.removeprefix("module.")')
_NAMES = frozenset({CLASS, COMM_HOOKS, DATA_PARALLEL, DISTRIBUTED, FULLY_SHARD})


def tidied(*marks: str) -> Step:
    """Return a step that makes new code look as if written by hand.

    Args:
        marks: what only new lines have.
    """

    def step(context: Context) -> Iterator[Found]:
        yield from unused_imports(context)
        yield from _one_import(context)
        yield from _short_lines(context, marks)

    return step


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


def _one_import(context: Context) -> Iterator[Found]:
    """Yield each group of imports of the state dict helpers, as one sorted import."""
    for code in context.codes(HELPERS):
        group: list[ir.ImportFrom] = []
        for statement in [*code.module.body, None]:
            if isinstance(statement, ir.ImportFrom) and _is_of_helpers(code, statement):
                group.append(statement)
                continue
            if group:
                yield from _joined(code, group)
            group = []


def _is_of_helpers(code: Code, statement: ir.ImportFrom) -> bool:
    plain = all(alias is None for _, alias in statement.names) and code.alone(statement)
    start, end = code.line_start(statement.start), code.line_end(statement.end)
    return (
        (statement.module, statement.level) == (HELPERS, 0)
        and plain
        and not (code.comments(start, end))
    )


def _joined(code: Code, group: Sequence[ir.ImportFrom]) -> Iterator[Change]:
    names = sorted({name for statement in group for name, _ in statement.names})
    line = f"from {HELPERS} import {', '.join(names)}"
    if len(line) > WIDTH:
        inside = "".join(f"{code.unit}{name},{code.newline}" for name in names)
        line = f"from {HELPERS} import ({code.newline}{inside})"
    start, end = group[0].start, group[-1].end
    long = any(len(code.line(each.start)) > WIDTH for each in group)
    if (len(group) > 1 or long) and line != code.text[start:end]:
        edit = code.edit(start, end, line)
        yield Change(edit.span, "import the state dict helpers in one statement", (edit,))


def _short_lines(context: Context, marks: Sequence[str]) -> Iterator[Found]:
    """Yield each long line with one of ``marks``, broken."""
    for code in context.codes(*marks):
        at = 0
        while at < len(code.text):
            end, line = code.line_end(at), code.line(at)
            marked = len(line) > WIDTH and any(mark in line for mark in marks)
            if marked and _is_whole(code, at, end):
                text = code.newline.join(wrapped(line, code.unit))
                edit = code.edit(at, at + len(line), text)
                if text != line:
                    yield Change(edit.span, "break a long line", (edit,))
            at = end


def _is_whole(code: Code, start: int, end: int) -> bool:
    """True for a line of one item that closes all its brackets, and without a comment."""
    line = code.line(start)
    balanced = all(line.count(mark[0]) == line.count(mark[1]) for mark in ("()", "[]", "{}"))
    opened = line.lstrip()[:1] not in ")]}"
    single = len(items_of(line)) == 1
    return (
        balanced
        and opened
        and single
        and not code.comments(start, end)
        and not code.in_string(start)
    )
