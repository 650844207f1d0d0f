"""Statements that decide whether a rank takes part in a step, or in a save of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.migrate.own_numbers import Variable, set_by, variable

# Calls that all ranks make together, or that leave the program.
_TOGETHER = frozenset(
    {
        *("backward", "step", "state_dict", "load_state_dict", "get_model_state_dict"),
        *("get_optimizer_state_dict", "set_model_state_dict", "set_optimizer_state_dict"),
        *("fully_shard", "broadcast", "exit", "_exit", "quit"),
    }
)


# A variable, or the name of an attribute or a function, which may be in any file.
_Wanted = Variable | str


def deciding(codes: Sequence[Code], *, tests: bool = False) -> set[ir.Node]:
    """Return such tests and, if not only ``tests``, what sets the variables that they ask for."""
    calls = together(codes)
    every = [(code, node) for code in codes for node in ir.walk(code.module)]
    arguments = list(passed(codes))
    found: set[ir.Node] = set()
    wanted: set[_Wanted] = set()
    while True:
        more = {
            node: code
            for code, node in every
            if node not in found and _decides(code, node, calls, wanted)
        }
        if not more or tests:
            return found | more.keys()
        found |= more.keys()
        for node, code in more.items():
            wanted |= _asked(code, node.test if isinstance(node, (ir.If, ir.While)) else node)
        size = -1
        while size != len(wanted):
            size = len(wanted)
            given = [(code, value) for code, parameter, value in arguments if parameter in wanted]
            wanted |= {name for code, value in given for name in _asked(code, value)}


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


def _asked(code: Code, node: ir.Node) -> set[_Wanted]:
    """Return the variables, attributes and functions that an expression or a statement names."""
    found: set[_Wanted] = set()
    for each in ir.walk(node):
        if isinstance(each, ir.Attribute):
            found.add(each.attr)
        elif isinstance(each, ir.Call) and isinstance(each.func, ir.Name):
            found.add(each.func.id)
        elif isinstance(each, ir.Name):
            found.add(variable(code, code.scope(each), each.id))
    return found


def passed(codes: Sequence[Code]) -> Iterator[tuple[Code, Variable, ir.Expr]]:
    """Yield what calls give to the parameters of the program's functions, by the calls' files."""
    functions: dict[str, list[tuple[Code, ir.Function]]] = {}
    for code in codes:
        for function in code.functions:
            functions.setdefault(function.name, []).append((code, function))
    for code in codes:
        for call in (n for n in ir.walk(code.module) if isinstance(n, ir.Call)):
            for other, function in functions.get(ir.last_name(call.func), ()):
                names = [each.name for each in function.parameters if each.name != "self"]
                for place, name in enumerate(names):
                    given = argument_of(call, place, name)
                    if given is not None:
                        yield code, (other.path, function, name), given.value


def _decides(code: Code, node: ir.Node, calls: set[str], wanted: Set[_Wanted]) -> bool:
    if isinstance(node, (ir.If, ir.While)):
        arms = (*node.body, *node.orelse)
        inside = [each for statement in arms for each in ir.walk(statement)]
        if called_in(arms) & calls or any(isinstance(each, ir.Raise) for each in inside):
            return True
        ways = (each for each in inside if isinstance(each, (ir.Break, ir.Continue, ir.Return)))
        if any(_leaves(code, each, calls, wanted) for each in ways):
            return True
        return any(name in wanted for each in inside for name in _set_names(code, each))
    if isinstance(node, ir.Return):
        function = code.function(node)
        return function is not None and function.name in wanted
    return isinstance(node, ir.Assign) and any(name in wanted for name in _set_names(code, node))


def _leaves(tree: Tree, way: ir.Node, calls: set[str], wanted: Set[_Wanted]) -> bool:
    """True if it leaves a loop, or a function, in which ranks make such calls."""
    function = tree.function(way)
    if isinstance(way, ir.Return):
        body = () if function is None else function.body
        return function is not None and (bool(called_in(body) & calls) or function.name in wanted)
    loops = (each for each in tree.ancestors(way) if isinstance(each, (ir.For, ir.While)))
    loop = next(loops, None)
    return loop is not None and bool(called_in(loop.body) & calls)


def _set_names(code: Code, node: ir.Node) -> Iterator[_Wanted]:
    for name, _ in set_by(node):
        last = name.rpartition(".")[2]
        yield variable(code, code.scope(node), name) if last == name else last
