"""Code that deletes files, which may be checkpoints that become folders."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
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
        span = code.edit(node.start, node.end, "").span
        question = Question(
            span, "deletes-checkpoints", f"Does `{code.short(node)}` delete checkpoints?", _YES
        )
        answer = context.answer(question)
        if answer is None:
            yield question
        if answer == "yes" and isinstance(statement, ir.Expression):
            yield _either(code, statement, node, subject)


def _either(code: Code, statement: ir.Stmt, call: ir.Call, subject: ir.Expr) -> Change:
    """Return the change to a call that deletes a file or a folder."""
    imports = Imports(code, call)
    os, shutil = imports.module("os", "os"), imports.module("shutil", "shutil")
    path = code.slice(subject) if dotted(subject) else fresh(code, call, "old")
    lines = [] if dotted(subject) else [f"{path} = {code.slice(subject)}"]
    lines += [f"if {os}.path.isdir({path}):", f"{code.unit}{shutil}.rmtree({path})", "else:"]
    before, after = code.text[call.start : subject.start], code.text[subject.end : call.end]
    lines.append(f"{code.unit}{before}{path}{after}")
    text = f"{code.newline}{code.indentation(statement)}".join(lines)
    edit = code.edit(call.start, call.end, text)
    return Change(edit.span, f"delete `{path}` if it is a folder, too", (edit,), (imports,))


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
    above = code.parent(code.statement(call))
    return isinstance(above, ir.If) and "isdir" in code.slice(above.test)
