"""Code that does nothing to a model, nor to how it is trained."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.engine.facts.called import called
from fsdplint.engine.program import Program
from fsdplint.engine.tree import Tree
from fsdplint.engine.written import library_name

_TELLS = frozenset({"logging", "warnings"})
_CHANGES = (ir.AugAssign, ir.Delete, ir.NamedExpr, ir.Opaque, ir.Scope, ir.Yield)
_LEAVES = (ir.Raise, ir.Break, ir.Continue)


def does_nothing(program: Program, path: str, block: Sequence[ir.Stmt], depth: int = 0) -> bool:
    """Whether a block, with all that it calls, at most tells something and binds variables."""
    nodes = [node for statement in block for node in ir.walk(statement)]
    leaves = _LEAVES if depth else (*_LEAVES, ir.Return)
    if any(isinstance(node, (*_CHANGES, *leaves)) for node in nodes):
        return False
    stored = [each for node in nodes if isinstance(node, ir.Assign) for each in node.targets]
    if not all(isinstance(each, ir.Name) for each in stored):
        return False
    calls = [node for node in nodes if isinstance(node, ir.Call)]
    return all(_is_harmless(program, path, call, depth) for call in calls)


def _is_harmless(program: Program, path: str, call: ir.Call, depth: int) -> bool:
    found = called(program, path, call) if depth < 3 else None
    if found is None:
        return _tells(program, path, call)
    return not found[1].decorators and does_nothing(program, found[0], found[1].body, depth + 1)


def _tells(program: Program, path: str, call: ir.Call) -> bool:
    """Whether a call is of what writes to a terminal or a log, or of a context that is none."""
    if isinstance(call.func, ir.Name) and call.func.id == "print":
        return True
    node = _meant(program.tree(path), call.func)
    while isinstance(node, (ir.Attribute, ir.Call)):
        node = node.func if isinstance(node, ir.Call) else node.value
        node = _meant(program.tree(path), node)
    name = library_name(program.project, path, node)
    return name.partition(".")[0] in _TELLS or name == "contextlib.nullcontext"


def _meant(tree: Tree, node: ir.Expr) -> ir.Expr:
    """As `Tree.meaning`, also of a variable that the file binds once around its functions."""
    node = tree.meaning(node)
    given = [
        statement.value
        for statement in tree.module.body
        if isinstance(statement, ir.Assign)
        and isinstance(node, ir.Name)
        and any(isinstance(each, ir.Name) and each.id == node.id for each in statement.targets)
    ]
    return given[0] if len(given) == 1 else node
