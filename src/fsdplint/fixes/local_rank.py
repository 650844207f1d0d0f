"""The rank among those of its own node in the place of the rank among all."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.environment import holder, is_only_read, is_read_before, number
from fsdplint.fixes.environment import text as read_text
from fsdplint.fixes.imports import Imports, resolved
from fsdplint.knowledge.launch import LOCAL_RANKS
from fsdplint.knowledge.names import DISTRIBUTED, canonical


@builder
def use_local_rank(code: Code, rank: ir.Expr, variable: str) -> Fix:
    """Writes the local rank where ``rank`` stands.

    Args:
        variable: the variable of the environment that holds it.
    """
    known = holder(code, rank, variable)
    imports = Imports(code, rank)
    text = known[0] if known else _read(code, rank, variable, imports)
    # A launcher of one's own may give the rank alone, which on one node is a device's number.
    there = (known is not None and known[1]) or is_read_before(code, rank, variable)
    sure = there and is_only_read(code, variable) and _is_global_rank(code, rank)
    title = f"use the local rank, `{known[0] if known else variable}`"
    edits = (code.edit(rank.start, rank.end, text), *imports.edits())
    return Fix(title, Safety.SAFE if sure else Safety.UNSAFE, edits)


def _is_global_rank(code: Code, rank: ir.Expr) -> bool:
    """Whether ``rank`` can be nothing but the rank among all nodes."""
    meant = code.meaning(rank)
    if isinstance(meant, ir.Call) and not meant.args:
        return canonical(resolved(code, meant.func) or "") in LOCAL_RANKS
    return (number(code, meant) or read_text(code, meant)) in LOCAL_RANKS


@builder
def set_device(code: Code, init: ir.Expr, *, perhaps: bool) -> Fix:
    """Gives each process its own device before the process group is made.

    Args:
        perhaps: there may be no CUDA.
    """
    statement = code.statement(init)
    start, _ = code.extent(statement)
    known = holder(code, statement, "LOCAL_RANK")
    imports = Imports(code, statement)
    module = imports.module("torch", "torch")
    local = known[0] if known else _read(code, statement, "LOCAL_RANK", imports)
    indent, newline = code.indentation(statement), code.newline
    lines = f"{indent}{module}.cuda.set_device({local}){newline}"
    if perhaps:
        lines = f"{indent}if {module}.cuda.is_available():{newline}{code.unit}{lines}"
    title = "give each process the device of its local rank"
    return Fix(title, Safety.UNSAFE, (code.insert_lines(start, lines), *imports.edits()))


def _read(code: Code, use: ir.Node, variable: str, imports: Imports) -> str:
    module = imports.module("os", "os")
    around = next((a for a in code.ancestors(use) if isinstance(a, ir.FormattedString)), None)
    if around is None:
        return f'{imports.builtin("int")}({module}.environ["{variable}"])'
    quote = "'" if '"' in code.slice(around)[:3] else '"'
    return f"{module}.environ[{quote}{variable}{quote}]"


@builder
def ask_global_rank(code: Code, test: ir.Node) -> Fix:
    """``local_rank == 0`` to a test of the rank among all nodes."""
    sides = (test.left, test.right) if isinstance(test, ir.Compare) else (test,)
    ranks = [side for side in sides if not isinstance(side, ir.Constant)]
    if len(ranks) != 1:
        raise NoFixError(f"`{code.short(test)}` is no test of one rank")
    imports = Imports(code, test)
    text = f"{imports.name(DISTRIBUTED, 'get_rank')}()"
    edits = (code.edit(ranks[0].start, ranks[0].end, text), *imports.edits())
    return Fix("ask for the rank among all nodes", Safety.UNSAFE, edits)
