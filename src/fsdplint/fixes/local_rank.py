"""The rank among those of its own node in the place of the rank among all."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted


@builder
def use_local_rank(code: Code, rank: ir.Expr, variable: str) -> Fix:
    """Writes the local rank where ``rank`` stands.

    Args:
        variable: the variable of the environment that holds it.
    """
    require_exact(code)
    known = known_as(code, rank, variable)
    imports = Imports(code, rank)
    text = known or _read(code, rank, variable, imports.module("os", "os"))
    safety = Safety.SAFE if known or f'"{variable}"' in code.text else Safety.UNSAFE
    title = f"use the local rank, `{known or variable}`"
    return Fix(title, safety, (code.edit(rank.start, rank.end, text), *imports.edits()))


def known_as(code: Code, rank: ir.Node, variable: str) -> str | None:
    """A name that surely holds the local rank where ``rank`` is used."""
    scope = code.scope(rank)
    for holder in dict.fromkeys((scope, code.module)):
        for node in code.nodes_of(holder):
            name = _holds(code, node, variable)
            if name is None or code.is_rebound(node.targets[0]):  # type: ignore[attr-defined]  # an Assign
                continue
            plain = code.parent(node) in (holder, code.module)
            if plain and (holder is not scope or node.end <= rank.start):
                return name
    return None


def _holds(code: Code, node: ir.Node, variable: str) -> str | None:
    """The name that an assignment gives to the number in ``variable``."""
    if not isinstance(node, ir.Assign) or len(node.targets) != 1:
        return None
    called = node.value.func if isinstance(node.value, ir.Call) else None
    whole = isinstance(called, ir.Name) and called.id == "int"
    read = variable in code.slice(node.value).replace("'", '"').split('"')
    return dotted(node.targets[0]) if whole and read else None


@builder
def set_device(code: Code, init: ir.Expr, *, perhaps: bool) -> Fix:
    """Gives each process its own device before the process group is made.

    Args:
        perhaps: there may be no CUDA.
    """
    require_exact(code)
    statement = code.statement(init)
    start, _ = code.extent(statement)
    known = known_as(code, statement, "LOCAL_RANK")
    imports = Imports(code, statement)
    module = imports.module("torch", "torch")
    local = known or f'int({imports.module("os", "os")}.environ["LOCAL_RANK"])'
    indent, newline = code.indentation(statement), code.newline
    lines = f"{indent}{module}.cuda.set_device({local}){newline}"
    if perhaps:
        lines = f"{indent}if {module}.cuda.is_available():{newline}{code.unit}{lines}"
    title = "give each process the device of its local rank"
    return Fix(title, Safety.UNSAFE, (code.insert_lines(start, lines), *imports.edits()))


def _read(code: Code, rank: ir.Expr, variable: str, module: str) -> str:
    around = next((a for a in code.ancestors(rank) if isinstance(a, ir.FormattedString)), None)
    if around is None:
        return f'int({module}.environ["{variable}"])'
    quote = "'" if '"' in code.slice(around)[:3] else '"'
    return f"{module}.environ[{quote}{variable}{quote}]"


@builder
def ask_global_rank(code: Code, test: ir.Node) -> Fix:
    """``local_rank == 0`` to a test of the rank among all nodes."""
    require_exact(code)
    sides = (test.left, test.right) if isinstance(test, ir.Compare) else (test,)
    ranks = [side for side in sides if not isinstance(side, ir.Constant)]
    if len(ranks) != 1:
        raise NoFixError(f"`{code.short(test)}` is no test of one rank")
    imports = Imports(code, test)
    text = f"{imports.name('torch.distributed', 'get_rank')}()"
    edits = (code.edit(ranks[0].start, ranks[0].end, text), *imports.edits())
    return Fix("ask for the rank among all nodes", Safety.UNSAFE, edits)
