"""Checkpoints that are written while training goes on: each save waits for the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import binders, dotted
from fsdplint.knowledge.launch import DESTROY
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.dcp.writes import Write
from fsdplint.migrate.step import Change, Context, Found, Kept

# The variables of a file for the save that may still run, and for what its ranks talk over.
FUTURE = "pending_save"
GROUP = "checkpoint_group"


def after_the_last(code: Code, call: ir.Call, imports: Imports) -> list[str]:
    """Return the lines that wait for the save before, above the one that ``call`` becomes.

    Checkpoints get a process group of their own: collectives of a save and of training on one
    group mix (run on torch 2.13), and a save in the background needs a backend for the CPU.
    """
    function = code.function(call)
    scopes = [code.module, *([function] if function is not None else [])]
    taken = any(name in binders(code, each) for each in scopes for name in (FUTURE, GROUP))
    if taken and f"{FUTURE}.result()" not in code.text:
        raise NoFixError(f"`{FUTURE}` or `{GROUP}` means something else in this file; rename it")
    dist = imports.module(DISTRIBUTED, "dist")
    shared = [f"global {FUTURE}, {GROUP}"] if function is not None else []
    return [
        *shared,
        f"if {FUTURE} is None:",
        f'{code.unit}{GROUP} = {dist}.new_group(backend="gloo")',
        "else:",
        f"{code.unit}{FUTURE}.result()",
    ]


def _wait(code: Code) -> list[str]:
    return [f"if {FUTURE} is not None:", f"{code.unit}{FUTURE}.result()"]


def none_yet(code: Code, call: ir.Call) -> Edit:
    """Return the edit that gives the variable its first value, above the code around a call."""
    around = next(each for each in code.module.body if each.end >= call.end)
    start, _ = code.extent(around)
    if f"{FUTURE} = None" in code.text:
        return code.edit(start, start, "")
    apart = code.newline * 2 if code.function(call) is not None else ""
    lines = f"{FUTURE} = None{code.newline}{GROUP} = None{code.newline}"
    return code.insert_lines(start, lines + apart)


def waits(context: Context, writes: Sequence[Write]) -> Iterator[Found]:
    """Yield what makes a program wait for its last save before it ends the process group."""
    ours = {write.code for write in writes if write.done and _is_kept(write)}
    if not ours:
        return
    for code in context.codes("destroy_process_group"):
        for node in code.walk("destroy_process_group"):
            if not isinstance(node, ir.Call) or context.name(code, node.func) != DESTROY:
                continue
            statement = code.statement(node)
            span = code.span(node)
            if code not in ours:
                reason = "the last save may still run; keep its future where this can wait for it"
                yield Kept(span, f"`{code.short(node)}`", reason)
            elif not _is_awaited(code, statement):
                indent, start = code.indentation(statement), code.line_start(statement.start)
                text = "".join(f"{indent}{line}{code.newline}" for line in _wait(code))
                edit = code.insert_lines(start, text)
                yield Change(span, "wait for the last save before the process group ends", (edit,))


def _is_kept(write: Write) -> bool:
    statement = write.code.statement(write.call)
    return isinstance(statement, ir.Assign) and dotted(statement.targets[0]) == FUTURE


def _is_awaited(code: Code, statement: ir.Stmt) -> bool:
    block = code.block(statement).statements
    before = block[: block.index(statement)][-1:]
    return any(f"{FUTURE}.result()" in code.slice(each) for each in before)
