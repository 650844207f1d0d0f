"""Parameters that only some ranks use in a step, whose gradients FSDP1 reduces all the same."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.tensors import DRAWS, READS_DATA
from fsdplint.migrate.step import Context

_SAYS = (ir.Raise, ir.Assert, ir.Pass)


def use_may_differ(context: Context) -> bool:
    """Return whether the data or random numbers of a rank may decide which parameters it uses.

    Forwards decide by either, other code of a training step by random numbers alone. Which
    functions a forward calls is told by their names.
    """
    return any(_may_differ(context))


def _may_differ(context: Context) -> Iterator[bool]:
    for code, function in _forwards(context):
        for test in _tests(code, function):
            yield _draws(context, code, test) or _reads_data(test)
        loops = (node for node in code.nodes_of(function) if isinstance(node, ir.For))
        yield any(_reads_data(code.meaning(loop.iterable)) for loop in loops)
    for code in context.codes(".backward("):
        steps = {code.scope(node) for node in code.walk("backward") if _is_backward(node)}
        for test in (test for step in steps for test in _tests(code, step)):
            yield _draws(context, code, test)


def _is_backward(node: ir.Node) -> bool:
    return isinstance(node, ir.Call) and ir.last_name(node.func) == "backward"


def _forwards(context: Context) -> Iterator[tuple[Code, ir.Function]]:
    """Yield the forwards of modules, and functions of the program that they may call."""
    defined: dict[str, list[tuple[Code, ir.Function]]] = {}
    for code in context.codes("def "):
        for node in ir.walk(code.module):
            if isinstance(node, ir.FunctionDef):
                defined.setdefault(node.function.name, []).append((code, node.function))
    waiting = ["forward"]
    for name in waiting:
        for code, function in defined.get(name, ()):
            yield code, function
            calls = (n.func for n in code.nodes_of(function) if isinstance(n, ir.Call))
            called = {ir.last_name(each) for each in calls if _is_own(each)}
            waiting += sorted(called.difference(waiting) & defined.keys())


def _is_own(func: ir.Expr) -> bool:
    return isinstance(func, ir.Name) or (
        isinstance(func, ir.Attribute) and ir.last_name(func.value) == "self"
    )


def _tests(code: Code, scope: ir.Function | ir.ClassDef | ir.Module) -> Iterator[ir.Expr]:
    """Yield what decides whether code of a scope runs, and what the names in it stand for."""
    for node in code.nodes_of(scope):
        if isinstance(node, ir.If) and all(map(_only_says, (*node.body, *node.orelse))):
            continue
        if isinstance(node, (ir.If, ir.Conditional)):
            yield node.test
            yield from (code.meaning(n) for n in ir.walk(node.test) if isinstance(n, ir.Name))


def _only_says(statement: ir.Stmt) -> bool:
    """True if a statement computes nothing that a loss may depend on."""
    value = statement.value if isinstance(statement, ir.Expression) else None
    prints = isinstance(value, ir.Call) and ir.last_name(value.func) in ("print", "warn")
    return prints or isinstance(statement, _SAYS)


def _draws(context: Context, code: Code, test: ir.Expr) -> bool:
    calls = (node.func for node in ir.walk(test) if isinstance(node, ir.Call))
    return any(context.name(code, each).startswith(DRAWS) for each in calls)


def _reads_data(test: ir.Expr) -> bool:
    calls = (node.func for node in ir.walk(test) if isinstance(node, ir.Call))
    return any(isinstance(each, ir.Attribute) and each.attr in READS_DATA for each in calls)
