"""Code that deletes or looks for files, which may be checkpoints that become folders."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.migrate.calls import definition
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
        span = code.span(node)
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


def existence(context: Context, names: Collection[str], ours: Collection[Code]) -> Iterator[Found]:
    """Yield what becomes of tests that a checkpoint is a file; elsewhere they would start anew.

    Args:
        names: the last parts of the paths of checkpoints.
        ours: the files that save or load them.
    """
    for code in context.codes("isfile", "is_file"):
        for node in code.walk("isfile", "is_file"):
            subject = _looked_for(context, code, node)
            if subject is None or not isinstance(node, ir.Call) or _is_new(code, node):
                continue
            last, span = last_part(code, subject), code.span(node)
            known = last in names and code in ours
            if not known and "." in last and not last.startswith("."):
                continue  # the name of another file
            text = f"Does `{code.short(node)}` look for a checkpoint?"
            question = Question(span, "looks-for-checkpoint", text, _YES)
            answer = "yes" if known else context.answer(question)
            if answer is None:
                yield question
            if answer == "yes" and isinstance(node.func, ir.Attribute):
                func = node.func
                edit = code.edit(func.end - len(func.attr), func.end, "exists")
                yield Change(span, f"look for a folder, too, in `{code.short(node)}`", (edit,))


def _looked_for(context: Context, code: Code, node: ir.Node) -> ir.Expr | None:
    """Return the path of a test whether it is a file."""
    if not isinstance(node, ir.Call) or not isinstance(node.func, ir.Attribute):
        return None
    if context.name(code, node.func) == "os.path.isfile" and len(node.args) == 1:
        return node.args[0].value
    subject = node.func.value
    listed = any("scandir" in code.slice(each) for each in code.sources(subject))
    return subject if node.func.attr == "is_file" and not (node.args or listed) else None


def _is_new(code: Code, call: ir.Call) -> bool:
    """Return whether a test tells files of `torch.save` from folders, as the new code does."""
    statement = code.statement(call)
    if isinstance(statement, ir.If):
        calls = [node for each in statement.body for node in ir.walk(each)]
        return any(isinstance(n, ir.Call) and ir.last_name(n.func) == "rename" for n in calls)
    block = code.block(statement).statements
    after = block[block.index(statement) + 1 :][:1]
    targets = [dotted(each) for each in getattr(statement, "targets", ())]
    return any(isinstance(each, ir.If) and dotted(each.test) in targets for each in after)


def last_part(code: Code, path: ir.Expr) -> str:
    """Return the text of the last part of a path."""
    meant = definition(code, path)
    if isinstance(meant, ir.Call) and meant.args:
        return last_part(code, meant.args[-1].value)
    if isinstance(meant, ir.BinOp):
        return last_part(code, meant.right)
    if isinstance(meant, ir.FormattedString):
        return meant.literals[-1] or last_part(code, meant.values[-1])
    if isinstance(meant, ir.Constant):
        return str(meant.value).rpartition("/")[2]
    return code.slice(meant)
