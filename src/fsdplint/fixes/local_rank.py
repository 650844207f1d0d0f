"""The rank among those of one node, as a program reads it from its environment."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports, resolved
from fsdplint.fixes.names import binders
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
    return (number(code, meant) or text(code, meant)) in LOCAL_RANKS


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


# What is read from the environment


_ENVIRON = "os.environ"
_GETTERS = ("os.getenv", f"{_ENVIRON}.get")
# What surrounds an expression and may leave it out, or evaluate it at another time.
_SOMETIMES = (ir.Function, ir.Comprehension, ir.Conditional, ir.BoolOp)


def number(code: Code, node: ir.Node) -> str | None:
    """The variable that is read by ``int(os.environ["LOCAL_RANK"])``, by ``get`` or ``getenv``."""
    if not isinstance(node, ir.Call) or resolved(code, node.func) != "builtins.int":
        return None
    return text(code, node.args[0].value) if len(node.args) == 1 else None


def text(code: Code, node: ir.Node) -> str | None:
    """The variable that is read by ``os.environ["LOCAL_RANK"]``, by ``get`` or ``getenv``."""
    key: ir.Node | None = None
    if isinstance(node, ir.Subscript) and resolved(code, node.value) == _ENVIRON:
        key = node.index
    elif isinstance(node, ir.Call) and resolved(code, node.func) in _GETTERS:
        plain = 0 < len(node.args) < 3 and not any(a.star or a.keyword for a in node.args)
        key = node.args[0].value if plain else None
    value = key.value if isinstance(key, ir.Constant) else None
    return value if isinstance(value, str) else None


def is_strict(code: Code, read: ir.Node) -> bool:
    """Whether what reads a variable, or its number, fails where the environment lacks it."""
    inner = read.args[0].value if isinstance(read, ir.Call) and number(code, read) else read
    return isinstance(inner, ir.Subscript)


def holder(code: Code, use: ir.Node, variable: str) -> tuple[str, bool] | None:
    """A name that surely holds the number in ``variable`` at ``use``, and if its read is strict."""
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
                return name, is_strict(code, node.value)
        inner.update(bound)
    return None


def _assigned(code: Code, node: ir.Node, variable: str) -> str | None:
    """The name that an assignment gives to the number in ``variable``."""
    if not isinstance(node, ir.Assign) or number(code, node.value) != variable:
        return None
    (target, *others) = node.targets
    return target.id if isinstance(target, ir.Name) and not others else None


def is_read_before(code: Code, use: ir.Node, variable: str) -> bool:
    """Whether ``variable`` is surely in the environment when ``use`` runs, since it was read."""
    return any(
        is_strict(code, read) and _has_run(code, read, use) for read in _reads(code, variable)
    )


def _has_run(code: Code, read: ir.Node, use: ir.Node) -> bool:
    statement = code.statement(read)
    inside = [each for each in code.ancestors(read) if each.start >= statement.start]
    sometimes = any(isinstance(each, _SOMETIMES) for each in inside)
    simple = isinstance(statement, (ir.Assign, ir.Expression))
    return simple and not sometimes and code.precedes(statement, use)


def _reads(code: Code, variable: str) -> Iterator[ir.Node]:
    for node in ir.walk(code.module):
        parent = code.parent(node) if isinstance(node, ir.Subscript) else None
        written = isinstance(parent, (ir.Assign, ir.Delete)) and node in parent.targets
        written |= isinstance(parent, ir.AugAssign) and node is parent.target
        if not written and text(code, node) == variable:
            yield node


def is_only_read(code: Code, variable: str) -> bool:
    """Whether the file only reads ``variable``, or asks if it is there, and never changes it."""
    read = {inner for each in _reads(code, variable) for inner in ir.walk(each)}
    for node in ir.walk(code.module):
        if isinstance(node, ir.Argument) and node.keyword == variable:
            return False
        if isinstance(node, ir.Constant) and node.value == variable and node not in read:
            parent = code.parent(node)
            if not isinstance(parent, ir.Compare) or parent.op not in ("In", "NotIn"):
                return False
    return True
