"""What only rank 0 does, and where it is sure that the process group is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.step import Change, Context

_PLAIN = (
    *(ir.Name, ir.Attribute, ir.Constant, ir.Call, ir.Subscript),
    *(ir.Compare, ir.BinOp, ir.Not),
)
_ASKS = ("get_rank()", 'environ.get("RANK"')


def start(context: Context) -> tuple[Code, ir.Call] | None:
    """Return the script and its call that creates the process group."""
    for code in context.codes("init_process_group"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == INIT:
                return code, node
    return None


def _started(code: Code, init: ir.Call, node: ir.Node) -> bool:
    """True if a place surely runs after ``init``, if it runs at all."""
    own, function = code.function(init), code.function(node)
    if own is function:
        return node.start > init.start
    if function is None:
        return False
    scopes = {own or code.module, code.module}
    calls = (n for s in scopes for n in code.nodes_of(s) if isinstance(n, ir.Call))
    early = {ir.last_name(call.func) for call in calls if call.start < init.start}
    return code.is_private() and not _names(code, function) & early


def _names(code: Code, function: ir.Function) -> set[str]:
    """Return the names whose calls may run a function: its own, or that of its class."""
    scope = code.scope(function)
    return {function.name, scope.name if isinstance(scope, ir.ClassDef) else ""}


def is_guarded(code: Code, node: ir.Node) -> bool:
    """True if only some ranks come to a place."""
    above = (each for each in code.ancestors(node) if isinstance(each, (ir.If, ir.Conditional)))
    return any(asks in code.slice(each.test) for each in above for asks in _ASKS)


def may_ask(context: Context, code: Code, node: ir.Node) -> bool:
    """True if the process group is surely there whenever a place of the script runs."""
    found = start(context)
    return found is not None and found[0].path == code.path and _started(code, found[1], node)


def rank_test(context: Context, code: Code, node: ir.Node, imports: Imports) -> str:
    """Return a test of the rank for a place; one of the environment where no group may be yet."""
    if may_ask(context, code, node):
        return f"{imports.module(DISTRIBUTED, 'dist')}.get_rank() == 0"
    return f'{imports.module("os", "os")}.environ.get("RANK", "0") == "0"'


def on_rank_zero(context: Context, code: Code, group: Sequence[ir.Stmt], what: str) -> Change:
    """Put statements that follow each other under a test of the rank, their own if they have one.

    Raises:
        NoFixError: the file uses `dist` for something else.
    """
    imports = Imports(code, group[0])
    test = rank_test(context, code, group[0], imports)
    edits = tuple(_narrowed(code, group, test) or _indented(code, group, test))
    return Change(code.span(group[0]), what, edits, (imports,))


def _narrowed(code: Code, group: Sequence[ir.Stmt], test: str) -> list[Edit]:
    """Return the edit of the test of an if statement that does nothing else."""
    owner = code.block(group[0]).owner
    whole = isinstance(owner, ir.If) and list(owner.body) == list(group) and not owner.orelse
    if not isinstance(owner, ir.If) or not whole or code.breaks(owner.test.start, owner.test.end):
        return []
    text = code.slice(owner.test)
    plain = isinstance(owner.test, _PLAIN) or (
        isinstance(owner.test, ir.BoolOp) and owner.test.op == "and"
    )
    left = text if plain else f"({text})"
    return [code.edit(owner.test.start, owner.test.end, f"{left} and {test}")]


def _indented(code: Code, group: Sequence[ir.Stmt], test: str) -> Iterator[Edit]:
    start = code.line_start(group[0].start)
    lines = list(code.code_lines(start, code.after(group[-1])))
    yield code.insert_lines(start, f"{code.indentation(group[0])}if {test}:{code.newline}")
    for at in lines:
        yield code.edit(at, at, code.unit)
