"""Fixes that use the local or global rank, read from the environment."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports, resolved
from fsdplint.fixes.names import binders
from fsdplint.knowledge.names import DISTRIBUTED


@builder
def use_rank(code: Code, rank: ir.Expr, variable: str, called: str) -> Fix:
    """Replace ``rank`` with another rank.

    Args:
        variable: the environment variable that holds the other rank.
        called: the name of the other rank in the title.
    """
    known = holder(code, rank, variable)
    imports = Imports(code, rank)
    text = known or _read(code, rank, variable, imports)
    # Another launcher may set the global rank only, which is a valid device index on one node.
    edits = (code.edit(rank.start, rank.end, text), *imports.edits())
    return Fix(f"use the {called} (`{known or variable}`)", Safety.UNSAFE, edits)


@builder
def set_device(code: Code, init: ir.Expr, *, perhaps: bool) -> Fix:
    """Give each process its own device before the process group is created.

    Args:
        perhaps: there may be no CUDA.
    """
    statement = code.statement(init)
    start, _ = code.extent(statement)
    known = holder(code, statement, "LOCAL_RANK")
    imports = Imports(code, statement)
    module = imports.module("torch", "torch")
    local = known or _read(code, statement, "LOCAL_RANK", imports)
    indent, newline = code.indentation(statement), code.newline
    lines = f"{indent}{module}.cuda.set_device({local}){newline}"
    if perhaps:
        lines = f"{indent}if {module}.cuda.is_available():{newline}{code.unit}{lines}"
    title = "set the GPU of each process from its local rank"
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
    """Replace the rank in a test such as ``local_rank == 0`` with the global rank."""
    sides = (test.left, test.right) if isinstance(test, ir.Compare) else (test,)
    ranks = [side for side in sides if not isinstance(side, ir.Constant)]
    if len(ranks) != 1:
        raise NoFixError(
            f"`{code.short(test)}` is not a test of one rank; test `dist.get_rank()` by hand"
        )
    imports = Imports(code, test)
    text = f"{imports.name(DISTRIBUTED, 'get_rank')}()"
    edits = (code.edit(ranks[0].start, ranks[0].end, text), *imports.edits())
    return Fix("test the global rank", Safety.UNSAFE, edits)


# Values from the environment


_ENVIRON = "os.environ"
_GETTERS = ("os.getenv", f"{_ENVIRON}.get")


def number(code: Code, node: ir.Node) -> str | None:
    """Return the variable that ``int(os.environ["LOCAL_RANK"])``, or ``getenv``, reads."""
    if not isinstance(node, ir.Call) or resolved(code, node.func) != "builtins.int":
        return None
    return text(code, node.args[0].value) if len(node.args) == 1 else None


def text(code: Code, node: ir.Node) -> str | None:
    """Return the variable that ``os.environ["LOCAL_RANK"]``, ``get`` or ``getenv`` reads."""
    key: ir.Node | None = None
    if isinstance(node, ir.Subscript) and resolved(code, node.value) == _ENVIRON:
        key = node.index
    elif isinstance(node, ir.Call) and resolved(code, node.func) in _GETTERS:
        plain = 0 < len(node.args) < 3 and not any(a.star or a.keyword for a in node.args)
        key = node.args[0].value if plain else None
    value = key.value if isinstance(key, ir.Constant) else None
    return value if isinstance(value, str) else None


def holder(code: Code, use: ir.Node, variable: str) -> str | None:
    """Return a name that surely holds the number in ``variable`` at ``use``."""
    inner: set[str] = set(code.shared)
    for scope in code.ancestors(use):
        if not isinstance(scope, (ir.Function, ir.ClassDef, ir.Module)):
            continue
        bound = binders(code, scope)
        for node in code.nodes_of(scope) if not isinstance(scope, ir.ClassDef) else ():
            name = _assigned(code, node, variable)
            if name is None or name in inner or bound[name] != [node]:
                continue
            if isinstance(node, ir.Assign) and code.precedes(node, use):
                return name
        inner.update(bound)
    return None


def _assigned(code: Code, node: ir.Node, variable: str) -> str | None:
    """Return the name to which an assignment binds the number in ``variable``."""
    if not isinstance(node, ir.Assign) or number(code, node.value) != variable:
        return None
    (target, *others) = node.targets
    return target.id if isinstance(target, ir.Name) and not others else None
