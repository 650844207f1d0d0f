"""Messages and changes of files of rank 0 only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Block, blocks
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.checkpoints import TORCH_SAVE
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.rank_zero import on_rank_zero
from fsdplint.migrate.single.writes import changes_files
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
_DEFINITIONS = (ir.Function, ir.FunctionDef, ir.ClassDef)
_WANDB = "wandb.init"


def outputs(context: Context) -> Iterator[Found]:
    """Yield a change for each group of messages that runs once the process group is there."""
    for code in context.codes("init_process_group"):
        init = next((n for n in ir.walk(code.module) if _is_init(context, code, n)), None)
        if init is not None:
            for block in _after(code, init):
                yield from _guarded(context, code, block, init)
    for code in context.codes("wandb"):
        yield from _runs(context, code)


def _is_init(context: Context, code: Code, node: ir.Node) -> bool:
    return isinstance(node, ir.Call) and context.name(code, node.func) == INIT


def _after(code: Code, init: ir.Node) -> Iterator[Block]:
    """Yield the blocks of a script that surely run after ``init``, if they run at all."""
    own = code.function(init)
    scopes = {own or code.module, code.module}
    calls = (n for s in scopes for n in code.nodes_of(s) if isinstance(n, ir.Call))
    early = {ir.last_name(call.func) for call in calls if call.start < init.start}
    scope = own or code.module
    functions = [f for f in code.functions if f is not own and not _is_early(code, f, early)]
    for owner in (scope, *functions):
        yield Block(owner, tuple(owner.body))
        for node in code.nodes_of(owner):
            yield from () if isinstance(node, _DEFINITIONS) else blocks(node)


def _is_early(code: Code, function: ir.Function, early: set[str]) -> bool:
    """True if a function, or a class, may be called before the process group is created."""
    scope = code.scope(function)
    names = {function.name, scope.name if isinstance(scope, ir.ClassDef) else ""}
    return bool(names & early) or not code.is_private()


def _guarded(context: Context, code: Code, block: Block, init: ir.Node) -> Iterator[Found]:
    statements = [s for s in block.statements if s.start > init.start or code.function(s)]
    group: list[ir.Stmt] = []
    for statement in [*statements, None]:
        if statement is not None and (
            _is_message(code, statement) or _is_change(context, code, statement)
        ):
            group.append(statement)
            continue
        if group and not _is_guarded(code, group[0]):
            yield from _change(code, group)
        group = []


def _is_message(code: Code, statement: ir.Stmt) -> bool:
    call = statement.value if isinstance(statement, ir.Expression) else None
    if not isinstance(call, ir.Call) or code.slice(call.func) != "print":
        return False
    inner = (n for n in ir.walk(call) if isinstance(n, ir.Call) and n is not call)
    return all(ir.last_name(n.func) in _QUIET for n in inner) and code.alone(statement)


def _is_change(context: Context, code: Code, statement: ir.Stmt) -> bool:
    """True for a call that changes files, unless it belongs to a save."""
    function = code.function(statement)
    saves = function is not None and TORCH_SAVE in code.slice(function)
    plain = isinstance(statement, ir.Expression) and not saves
    return plain and changes_files(context, code, statement)


def _is_guarded(code: Code, statement: ir.Stmt) -> bool:
    above = (node for node in code.ancestors(statement) if isinstance(node, ir.If))
    return any("get_rank()" in code.slice(node.test) for node in above)


def _change(code: Code, group: Sequence[ir.Stmt]) -> Iterator[Found]:
    try:
        prints = all(_is_message(code, each) for each in group)
        what = "print on rank 0 only" if prints else "change files on rank 0 only"
        yield on_rank_zero(code, group, what)
    except NoFixError:
        return  # messages of all ranks do no harm


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
