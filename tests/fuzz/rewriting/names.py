"""Names in a function, a module and a program: what binds them, and what they are called after."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from random import Random

from tests.fuzz.trees import Function, Statements, Trees, parents

BUILTINS = frozenset(dir(builtins))
# A function that looks names up by itself is left as it is.
_DYNAMIC = frozenset({"locals", "globals", "vars", "exec", "eval", "super", "getattr", "setattr"})
# Names by which a value is known to have to do with ranks; another name may mean another thing.
_TELLING = re.compile(r"rank|world|size|gpu|proc|main|forward|__|^_$|test")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def loads(*nodes: ast.AST) -> set[str]:
    """Every name read below ``nodes``; what is added to is read as well."""
    found = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that statements bind in the scope they stand in."""
    found: set[str] = set()
    for node in _own(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What stands below ``nodes`` without the bodies of inner scopes."""
    queue = list(nodes)
    for node in queue:
        yield node
        if isinstance(node, _SCOPES):
            queue.extend(getattr(node, "decorator_list", []))
        elif isinstance(node, _COMPREHENSIONS):
            queue.extend(n for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        else:
            queue.extend(ast.iter_child_nodes(node))


def parameters(function: Function) -> list[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    stars = [star for star in (given.vararg, given.kwarg) if star is not None]
    return [argument.arg for argument in (*every, *stars)]


def local_names(function: Function) -> set[str]:
    return (bound(function.body) | set(parameters(function))) - elsewhere(function)


def elsewhere(*nodes: ast.AST) -> set[str]:
    """Names that are declared global or nonlocal."""
    return {
        name
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }


def definitely(statement: ast.stmt) -> set[str]:
    """The names a statement surely has bound once it has ended."""
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in bound([target])}
    if isinstance(statement, ast.AnnAssign):
        return bound([statement.target]) if statement.value else set()
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        entered = {name for item in statement.items for name in bound([item])}
        return entered | after(statement.body)
    if isinstance(statement, ast.If):
        return after(statement.body) & after(statement.orelse) if statement.orelse else set()
    if isinstance(statement, (*_SCOPES, ast.Import, ast.ImportFrom)):
        return bound([statement])
    return set()


def after(statements: Statements) -> set[str]:
    return {name for statement in statements for name in definitely(statement)}


def is_dynamic(*nodes: ast.AST) -> bool:
    return bool(loads(*nodes) & _DYNAMIC)


def every_name(trees: Trees) -> set[str]:
    """Everything that is called somehow in a program, attributes and keywords included."""
    found: set[str] = set()
    for module in trees.modules.values():
        for node in ast.walk(module):
            for field in ("id", "attr", "arg", "name", "asname"):
                name = getattr(node, field, None)
                if isinstance(name, str):
                    found.add(name)
    return found | set(BUILTINS)


def fresh(trees: Trees, name: str) -> str:
    """``name``, or with a number where a program already has it."""
    taken = every_name(trees)
    return next(
        made
        for number in range(1000)
        if (made := name if not number else f"{name}_{number}") not in taken
    )


def is_free(name: str) -> bool:
    """Whether a name may be changed for another without changing what it hints at."""
    return not _TELLING.search(name)


def words(node: ast.AST) -> str:
    """A name for the value of an expression, made of the words in it."""
    found = [
        str(getattr(inner, "id", None) or getattr(inner, "attr", None))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Name, ast.Attribute))
    ]
    made = "_".join(reversed(found[:3])).lower().strip("_")
    return made if made.isidentifier() and not keyword.iskeyword(made) else "value"


def functions(trees: Trees) -> list[tuple[str, Function]]:
    return [
        (path, node)
        for path, module in trees.modules.items()
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def rename_local(trees: Trees, random: Random) -> bool:
    """Gives a variable of a function another name."""
    candidates = [
        (function, name)
        for _, function in functions(trees)
        if not is_dynamic(function)
        for name in sorted(bound(function.body) - set(parameters(function)) - elsewhere(function))
        if is_free(name) and not _defined_or_imported(function, name)
    ]
    if not candidates:
        return False
    function, name = random.choice(candidates)
    if any(name in _rebound(inner) for inner in ast.walk(function) if inner is not function):
        return False
    _rename(function, name, fresh(trees, f"{name}_{random.choice('abc')}"))
    return True


def _defined_or_imported(function: Function, name: str) -> bool:
    defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [node for node in ast.walk(function) if isinstance(node, (*defining, ast.Match))]
    return any(name in bound([node]) for node in nodes)


def _rebound(scope: ast.AST) -> set[str]:
    """The names that an inner scope has for itself."""
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return local_names(scope)
    if isinstance(scope, ast.Lambda):
        return {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    if isinstance(scope, ast.ClassDef):
        return bound(scope.body)
    return set()


def _rename(root: ast.AST, old: str, new: str) -> None:
    for node in ast.walk(root):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        elif isinstance(node, ast.ExceptHandler) and node.name == old:
            node.name = new


def rename_function(trees: Trees, random: Random) -> bool:
    """Gives a function of a module another name, wherever the program uses it."""
    candidates = [
        (path, node)
        for path, module in trees.modules.items()
        for node in module.body
        if isinstance(node, ast.FunctionDef) and is_free(node.name) and len(node.name) > 1
    ]
    if not candidates:
        return False
    _, function = random.choice(candidates)
    old = function.name
    if _otherwise_bound(trees, old, function):
        return False
    new = fresh(trees, f"{old}_{random.choice('abc')}")
    for module in trees.modules.values():
        _rename(module, old, new)
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    alias.name = new if alias.name == old else alias.name
    function.name = new
    return True


def _otherwise_bound(trees: Trees, name: str, function: Function) -> bool:
    """Whether a name means anything else than ``function`` somewhere in the program."""
    for module in trees.modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.alias) and name in (node.asname, *node.name.split(".")[:-1]):
                return True
            if isinstance(node, ast.alias) and node.name == name and len(trees.modules) == 1:
                return True
            if isinstance(node, ast.arg) and node.arg == name:
                return True
            if isinstance(node, ast.Constant) and node.value == name:
                return True
            if isinstance(node, ast.Attribute) and node.attr == name:
                return True
            if (
                isinstance(node, ast.Name)
                and node.id == name
                and not isinstance(node.ctx, ast.Load)
            ):
                return True
            defining = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            if isinstance(node, defining) and node.name == name and node is not function:
                return True
    return False


def annotate(trees: Trees, random: Random) -> bool:
    """Says ``Any`` of a variable where it is assigned."""
    found = []
    for module in trees.modules.values():
        above = parents(module)
        for node in ast.walk(module):
            one = isinstance(node, ast.Assign) and len(node.targets) == 1
            if one and isinstance(node.targets[0], ast.Name):
                scope = above[node]
                while not isinstance(scope, (*_SCOPES, ast.Module)):
                    scope = above[scope]
                name = node.targets[0].id
                if not isinstance(scope, ast.ClassDef) and name not in elsewhere(scope):
                    found.append((node, above[node]))
    if not found:
        return False
    node, owner = random.choice(found)
    made = ast.AnnAssign(node.targets[0], ast.Constant("typing.Any"), node.value, simple=1)
    made.origin = node.origin if hasattr(node, "origin") else None  # type: ignore[attr-defined]  # see Trees
    _replace(owner, node, made)
    return True


def _replace(owner: ast.AST, old: ast.stmt, new: ast.stmt) -> None:
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(owner, field, None)
        if isinstance(statements, list) and old in statements:
            statements[statements.index(old)] = new
