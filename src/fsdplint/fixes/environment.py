"""Numbers that a program reads from its environment, such as the rank that torchrun gives."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import resolved
from fsdplint.fixes.names import binders

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
