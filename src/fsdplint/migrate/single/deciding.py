"""Statements that decide whether a rank takes part in a step, or in a save of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.fixes.code import Code
from fsdplint.migrate.own_numbers import set_by

# Calls that all ranks make together, or that leave the program.
_TOGETHER = frozenset(
    {
        *("backward", "step", "state_dict", "load_state_dict", "get_model_state_dict"),
        *("get_optimizer_state_dict", "set_model_state_dict", "set_optimizer_state_dict"),
        *("fully_shard", "broadcast", "exit", "_exit", "quit"),
    }
)


def deciding(codes: Sequence[Code], *, tests: bool = False) -> set[ir.Node]:
    """Return such tests and, if not only ``tests``, what sets the variables that they ask for."""
    calls = together(codes)
    every = [(code, node) for code in codes for node in ir.walk(code.module)]
    found: set[ir.Node] = set()
    wanted: set[str] = set()
    while True:
        more = {
            node
            for code, node in every
            if node not in found and _decides(code, node, calls, wanted)
        }
        if not more or tests:
            return found | more
        found |= more
        for node in more:
            asked = node.test if isinstance(node, (ir.If, ir.While)) else node
            wanted |= {name for each in ir.walk(asked) for name in _last(each)} - {"self"}


def together(codes: Sequence[Code]) -> set[str]:
    """Return the names of the functions that lead to such calls, with theirs."""
    names, size = set(_TOGETHER), 0
    functions = [f for code in codes for f in code.functions]
    called = {f: called_in(f.body) for f in functions}
    while size != len(names):
        size = len(names)
        names |= {f.name for f in functions if called[f] & names}
    return names - {"__init__"}


def reached(names: Set[str], codes: Sequence[Code]) -> set[str]:
    """Return the names of functions, and of those that they call, and so on."""
    found, size = set(names), 0
    while size != len(found):
        size = len(found)
        bodies = [f.body for code in codes for f in code.functions if f.name in found]
        found |= {name for body in bodies for name in called_in(body)}
    return found


def called_in(statements: Iterable[ir.Node]) -> set[str]:
    """Return the last names of the functions that are called in ``statements``."""
    nodes = (node for each in statements for node in ir.walk(each))
    return {ir.last_name(node.func) or "" for node in nodes if isinstance(node, ir.Call)}


def _decides(code: Code, node: ir.Node, calls: set[str], wanted: set[str]) -> bool:
    if isinstance(node, (ir.If, ir.While)):
        arms = (*node.body, *node.orelse)
        inside = [each for statement in arms for each in ir.walk(statement)]
        if called_in(arms) & calls or any(isinstance(each, ir.Raise) for each in inside):
            return True
        ways = (each for each in inside if isinstance(each, (ir.Break, ir.Continue, ir.Return)))
        if any(_leaves(code, each, calls, wanted) for each in ways):
            return True
        return any(name in wanted for each in inside for name in _set_names(each))
    if isinstance(node, ir.Return):
        function = code.function(node)
        return function is not None and function.name in wanted
    return isinstance(node, ir.Assign) and any(name in wanted for name in _set_names(node))


def _leaves(tree: Tree, way: ir.Node, calls: set[str], wanted: set[str]) -> bool:
    """True if it leaves a loop, or a function, in which ranks make such calls."""
    function = tree.function(way)
    if isinstance(way, ir.Return):
        body = () if function is None else function.body
        return function is not None and (bool(called_in(body) & calls) or function.name in wanted)
    loops = (each for each in tree.ancestors(way) if isinstance(each, (ir.For, ir.While)))
    loop = next(loops, None)
    return loop is not None and bool(called_in(loop.body) & calls)


def _last(node: ir.Node) -> Iterator[str]:
    if isinstance(node, (ir.Name, ir.Attribute)):
        yield node.id if isinstance(node, ir.Name) else node.attr


def _set_names(node: ir.Node) -> Iterator[str]:
    for name, _ in set_by(node):
        yield name.rpartition(".")[2]
