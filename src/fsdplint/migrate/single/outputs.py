"""Messages and changes of files of rank 0 only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND, Block, blocks
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.checkpoints import TORCH_SAVE
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.changes_files import (
    changes_files,
    is_alone,
    shared_work,
    writing_call,
)
from fsdplint.migrate.single.rank_zero import is_guarded, may_ask, on_rank_zero, start
from fsdplint.migrate.step import Change, Context, Found, attempt

# Calls that are part of messages and need no other rank.
_QUIET = frozenset(
    {
        *("item", "len", "str", "format", "int", "float", "round", "time", "perf_counter", "sum"),
        *("type", "size", "sorted", "list", "keys", "get_lr", "get_last_lr", "repr", "max", "min"),
        *("join", "strftime", "mean", "tolist", "numel", "abs", "exp", "perplexity"),
        *("device_count", "get_device_name"),
    }
)
_WANDB = "wandb.init"


def outputs(context: Context) -> Iterator[Found]:
    """Yield a change for each group of messages, and of changes of files, of all ranks."""
    if start(context) is None:
        return
    for code in context.codes(""):
        for owner in ir.walk(code.module):
            bodies = isinstance(owner, (ir.Function, ir.Module)) and owner.body
            for block in [Block(owner, tuple(bodies))] if bodies else blocks(owner):
                yield from _guarded(context, code, block)
    for code in context.codes("wandb"):
        yield from _runs(context, code)


def _guarded(context: Context, code: Code, block: Block) -> Iterator[Found]:
    group: list[ir.Stmt] = []
    for statement in [*block.statements, None]:
        if statement is not None and (
            _is_message(context, code, statement) or _is_change(context, code, statement)
        ):
            group.append(statement)
            continue
        if group and not is_guarded(code, group[0]):
            yield from _change(context, code, group)
        group = []
        if statement is not None and not is_guarded(code, statement):
            yield from _computed_first(context, code, statement)


def _computed_first(context: Context, code: Code, statement: ir.Stmt) -> Iterator[Found]:
    """Yield a change that computes on all ranks what a statement writes to a file."""
    call = writing_call(context, code, statement)
    parts = [] if call is None else list(shared_work(context, code, call))
    names = [fresh(code, statement, "result" + "_" * place) for place in range(len(parts))]
    edits = []
    for name, part in zip(names, parts, strict=True):
        line = f"{code.indentation(statement)}{name} = {code.slice(part)}{code.newline}"
        edits.append(code.insert_lines(code.line_start(statement.start), line))
        edits.append(code.edit(part.start, part.end, name))
    if edits:
        yield Change(code.span(statement), "compute on all ranks what rank 0 writes", tuple(edits))


def _is_message(context: Context, code: Code, statement: ir.Stmt) -> bool:
    call = statement.value if isinstance(statement, ir.Expression) else None
    if not isinstance(call, ir.Call) or code.slice(call.func) != "print":
        return False
    inner = (n for n in ir.walk(call) if isinstance(n, ir.Call) and n is not call)
    quiet = all(_is_quiet(context, code, each) for each in inner) and code.alone(statement)
    return quiet and may_ask(context, code, statement)


def _is_quiet(context: Context, code: Code, call: ir.Call) -> bool:
    if ir.last_name(call.func) in _QUIET:
        return True
    return is_alone(context, code, call) and not list(shared_work(context, code, call))


def _is_change(context: Context, code: Code, statement: ir.Stmt) -> bool:
    """True for a call that changes files, unless it belongs to a save above it."""
    if not isinstance(statement, ir.Expression) or not changes_files(context, code, statement):
        return False
    around = (each for each in code.ancestors(statement) if isinstance(each, COMPOUND))
    return not any(_follows_save(context, code, each) for each in (statement, *around))


def _follows_save(context: Context, code: Code, statement: ir.Stmt) -> bool:
    above = [s for s in code.block(statement).statements if s.start < statement.start]
    while above and changes_files(context, code, above[-1]):
        above.pop()
    return (
        bool(above)
        and TORCH_SAVE in code.slice(above[-1])
        and "get_rank()" not in code.slice(above[-1])
    )


def _change(context: Context, code: Code, group: Sequence[ir.Stmt]) -> Iterator[Found]:
    if not all(_is_message(context, code, each) for each in group):
        change = partial(on_rank_zero, context, code, group, "change files on rank 0 only")
        yield from attempt(code, group[0], change)
        return
    with suppress(NoFixError):  # messages of all ranks do no harm
        yield on_rank_zero(context, code, group, "print on rank 0 only")


def _runs(context: Context, code: Code) -> Iterator[Found]:
    """Yield a change for each run of wandb, of which each rank would have one."""
    for node in ir.walk(code.module):
        if not isinstance(node, ir.Call) or context.name(code, node.func) != _WANDB:
            continue
        if any(each.keyword == "mode" for each in node.args):
            continue
        yield from attempt(code, node, partial(_one_run, code, node))


def _one_run(code: Code, call: ir.Call) -> Change:
    imports = Imports(code, call)
    dist = imports.module(DISTRIBUTED, "dist")
    edit = put_argument(code, call, "mode", f'"disabled" if {dist}.get_rank() else None')
    what = "have one run of wandb, that of rank 0"
    return Change(code.span(call), what, (edit,), (imports,))
