"""Code that deletes files, which may be checkpoints that become folders."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.migrate.step import Change, Context, Found, Question

_REMOVES = frozenset({"os.remove", "os.unlink"})


def removals(context: Context, code: Code) -> Iterator[Found]:
    """Yield what becomes of each call that deletes a file, by the answer to a question."""
    for node in code.walk("remove", "unlink"):
        statement = code.statement(node) if isinstance(node, ir.Call) else None
        whole = isinstance(statement, ir.Expression) and statement.value is node
        subject = _subject(context, code, node) if whole else None
        if subject is None or not isinstance(node, ir.Call) or _is_for_files(code, node):
            continue
        text, span = code.slice(subject), code.edit(node.start, node.end, "").span
        question = Question(
            span, "deletes-checkpoints", f"Does `{code.short(node)}` delete checkpoints?", _YES
        )
        answer = context.answer(question)
        if answer is None:
            yield question
        if answer == "yes":
            imports = Imports(code, node)
            os, shutil = imports.module("os", "os"), imports.module("shutil", "shutil")
            new = f"{shutil}.rmtree({text}) if {os}.path.isdir({text}) else {code.slice(node)}"
            edit = code.edit(node.start, node.end, new)
            yield Change(span, f"delete `{text}` if it is a folder, too", (edit,), (imports,))


_YES = ("yes", "no")


def _subject(context: Context, code: Code, node: ir.Node) -> ir.Expr | None:
    """Return the path that a call deletes."""
    if not isinstance(node, ir.Call):
        return None
    if context.name(code, node.func) in _REMOVES and len(node.args) == 1:
        return node.args[0].value
    is_method = isinstance(node.func, ir.Attribute) and node.func.attr == "unlink"
    return node.func.value if is_method and isinstance(node.func, ir.Attribute) else None


def _is_for_files(code: Code, call: ir.Call) -> bool:
    """Return whether a call is in the other arm of a test for a folder already."""
    above = code.parent(call)
    return isinstance(above, ir.Conditional) and "isdir" in code.slice(above.test)
