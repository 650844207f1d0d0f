"""Statements put into a function of their own, and a function's put where it is called."""

from __future__ import annotations

import ast
import copy
from random import Random

from tests.fuzz.rewriting.names import (
    BUILTINS,
    after,
    bound,
    definitely,
    elsewhere,
    every_name,
    fresh,
    functions,
    is_dynamic,
    loads,
    local_names,
    parameters,
)
from tests.fuzz.trees import Function, Statements, Trees, blocks, parents

_FIXED = (
    ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Global,
    ast.Nonlocal, ast.Delete, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import,
    ast.ImportFrom, ast.NamedExpr, ast.Match, ast.Try,
)  # fmt: skip


def extract(trees: Trees, random: Random) -> bool:
    """Puts some statements that follow each other into a function and calls it."""
    _, module = random.choice(sorted(trees.modules.items()))
    above = parents(module)
    places = [(o, s) for o, s in blocks(module) if not isinstance(o, ast.ClassDef)]
    if not places:
        return False
    owner, statements = random.choice(places)
    start = random.randrange(len(statements))
    run = statements[start : start + random.randint(1, 6)]
    if _is_docstring(run[0], owner, start):
        return False
    if any(isinstance(node, _FIXED) for each in run for node in ast.walk(each)):
        return False
    if _leaves_loop(run) or is_dynamic(*run):
        return False
    scopes = _scopes(owner, above)
    if len(scopes) > 1 or any(isinstance(scope, ast.ClassDef) for scope in scopes[:-1]):
        return False
    cut = _cut(module, scopes[0] if scopes else None, owner, statements, start, run, above)
    if cut is None:
        return False
    given, results = cut
    name = fresh(trees, random.choice(("part", "prepare_part", "do_part", "_part")))
    where = owner
    while above.get(where) is not None and above[where] is not module:
        where = above[where]
    at = start if owner is module else module.body.index(where)  # type: ignore[arg-type]  # below the module
    statements[start : start + len(run)] = [_call(name, given, results)]
    module.body.insert(at, _function(name, given, results, run))
    return True


def _is_docstring(first: ast.stmt, owner: ast.AST, start: int) -> bool:
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return text and start == 0 and hasattr(owner, "body")


def _leaves_loop(run: Statements) -> bool:
    inside = {
        inner
        for statement in run
        for loop in ast.walk(statement)
        if isinstance(loop, (ast.For, ast.While))
        for part in loop.body
        for inner in ast.walk(part)
    }
    return any(
        isinstance(node, (ast.Break, ast.Continue)) and node not in inside
        for statement in run
        for node in ast.walk(statement)
    )


def _scopes(owner: ast.AST | None, above: dict[ast.AST, ast.AST]) -> list[Function]:
    found = []
    while owner is not None:
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(owner)
        owner = above.get(owner)
    return found


def _cut(
    module: ast.Module,
    function: Function | None,
    owner: ast.AST,
    statements: Statements,
    start: int,
    run: Statements,
    above: dict[ast.AST, ast.AST],
) -> tuple[list[str], list[str]] | None:
    """What the new function must be given and what it must return, None where that is not plain."""
    scope: ast.AST = function or module
    own = local_names(function) if function else bound(module.body)
    if function is None:
        own -= _defined(module)
    stored, read = bound(run), loads(*run)
    if stored & elsewhere(scope) or (function is None and stored & _read_by_functions(module)):
        return None
    before = set(parameters(function)) if function else set()
    before |= after(statements[:start]) | _before(owner, above, scope)
    first = _first_stores(run)
    wanted = sorted(name for name in read & own if name not in first)
    if function is None:
        wanted = [name for name in wanted if name in stored or name in before]
    if not set(wanted) <= before:
        return None
    if not _bound_first(run, first) or read & stored & _comprehended(run):
        return None
    rest = [node for node in ast.walk(scope) if isinstance(node, ast.Name)]
    inside = {node for each in run for node in ast.walk(each)}
    outside = {n.id for n in rest if n not in inside and isinstance(n.ctx, ast.Load)}
    outside |= _augmented(scope, inside)
    results = sorted(stored & (outside | set(wanted)))
    if function is None:
        results = sorted(stored)
    if not set(results) <= after(run) | before:
        return None
    given = sorted(set(wanted) | (set(results) - after(run)))
    return (given, results) if set(given) <= before else None


def _defined(module: ast.Module) -> set[str]:
    """Names of a module that are no variables."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return {name for node in ast.walk(module) if isinstance(node, kinds) for name in bound([node])}


def _read_by_functions(module: ast.Module) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    return loads(*(node for node in ast.walk(module) if isinstance(node, kinds)))


def _before(owner: ast.AST, above: dict[ast.AST, ast.AST], scope: ast.AST) -> set[str]:
    """Names that are bound for sure where the block of ``owner`` begins."""
    found: set[str] = set()
    while owner is not scope:
        if isinstance(owner, ast.For):
            found |= bound([owner.target])
        elif isinstance(owner, ast.With):
            found |= {name for item in owner.items for name in bound([item])}
        outer = above[owner]
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(outer, field, None)
            if isinstance(statements, list) and owner in statements:
                found |= after(statements[: statements.index(owner)])
        owner = outer
    return found


def _first_stores(run: Statements) -> set[str]:
    """Names that the run binds before it reads them."""
    found: set[str] = set()
    for index, statement in enumerate(run):
        met = loads(*run[:index])
        if isinstance(statement, ast.For):
            names = bound([statement.target]) - loads(statement.iter)
            # Only inside of the loop: afterwards it may be unbound.
            rest = loads(*run[index + 1 :], *statement.orelse)
            found |= names - met - rest
        elif isinstance(statement, ast.With):
            names = {name for item in statement.items for name in bound([item])}
            found |= names - met - loads(*(item.context_expr for item in statement.items))
        else:
            found |= definitely(statement) - met - loads(statement)
    return found


def _bound_first(run: Statements, first: set[str]) -> bool:
    """Whether all that is read and bound in the run is bound first, or comes from outside."""
    return not {n for each in run for n in ast.walk(each) if isinstance(n, ast.Lambda)} or not first


def _comprehended(run: Statements) -> set[str]:
    """Names bound by comprehensions, which are another variable of the same name."""
    return {
        name
        for statement in run
        for node in ast.walk(statement)
        if isinstance(node, ast.comprehension)
        for name in bound([node.target])
    }


def _augmented(scope: ast.AST, inside: set[ast.AST]) -> set[str]:
    return {
        node.target.id
        for node in ast.walk(scope)
        if isinstance(node, ast.AugAssign)
        and node not in inside
        and isinstance(node.target, ast.Name)
    }


def _call(name: str, given: list[str], results: list[str]) -> ast.stmt:
    call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(g, ast.Load()) for g in given], [])
    if not results:
        return ast.Expr(call)
    return ast.Assign([_names(results, ast.Store())], call)


def _names(names: list[str], context: ast.expr_context) -> ast.expr:
    each: list[ast.expr] = [ast.Name(name, context) for name in names]
    return each[0] if len(each) == 1 else ast.Tuple(each, context)


def _function(name: str, given: list[str], results: list[str], run: Statements) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg(g) for g in given], None, [], [], None, [])
    body = [*run, ast.Return(_names(results, ast.Load()))] if results else [*run]
    return ast.FunctionDef(name, arguments, body, [], None, None, lineno=0)


def wrap_main(trees: Trees, random: Random) -> bool:
    """Puts what a script does into a function that its last line calls.

    A test of ``__name__`` is neither moved nor made: it tells a script from a module.
    """
    _, module = random.choice(sorted(trees.modules.items()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    last = max((i for i, node in enumerate(module.body) if isinstance(node, kinds)), default=-1)
    run = module.body[last + 1 :]
    fixed = (*_FIXED[:-3], ast.Try)
    if not run or any(isinstance(n, fixed) for each in run for n in ast.walk(each)):
        return False
    stored = bound(run)
    if stored & _read_by_functions(module) or is_dynamic(*run):
        return False
    if stored & (bound(module.body[: last + 1]) | _imported_names(trees, module)):
        return False
    if any(map(_is_main_test, run)):
        return False
    if stored & loads(*module.body[: last + 1]) or _is_docstring(run[0], module, last + 1):
        return False
    name = fresh(trees, "main")
    function = _function(name, [], [], run)
    call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
    module.body[last + 1 :] = [function, call]
    return True


def _is_main_test(statement: ast.stmt) -> bool:
    return "__name__" in loads(statement)


def _imported_names(trees: Trees, module: ast.Module) -> set[str]:
    """What other files take from a program's files, by name or as an attribute."""
    return {
        name
        for other in trees.modules.values()
        if other is not module
        for node in ast.walk(other)
        for name in (getattr(node, "name", None), getattr(node, "attr", None))
        if isinstance(name, str)
    }


def inline(trees: Trees, random: Random) -> bool:
    """Puts the body of a function in the place of its only call."""
    candidates = [
        (module, node)
        for module in trees.modules.values()
        for node in module.body
        if isinstance(node, ast.FunctionDef) and _is_plain(node)
    ]
    random.shuffle(candidates)
    return any(_inlined(trees, module, function) for module, function in candidates)


def _is_plain(function: ast.FunctionDef) -> bool:
    given = function.args
    if function.decorator_list or given.vararg or given.kwarg or given.posonlyargs:
        return False
    if given.defaults or [each for each in given.kw_defaults if each is not None]:
        return False
    inner = function.body[:-1] if isinstance(function.body[-1], ast.Return) else function.body
    fixed = (
        *(kind for kind in _FIXED if kind not in (ast.Match, ast.Try, ast.NamedExpr)),
        ast.Lambda,
    )
    return not any(isinstance(node, fixed) for each in inner for node in ast.walk(each))


def _inlined(trees: Trees, module: ast.Module, function: ast.FunctionDef) -> bool:
    everywhere = [
        node
        for each in trees.modules.values()
        for node in ast.walk(each)
        if function.name in (getattr(node, "id", None), getattr(node, "name", None))
        or function.name == getattr(node, "attr", None)
    ]
    above = parents(module)
    uses = [node for node in everywhere if isinstance(node, ast.Name)]
    if len(uses) != 1 or len(everywhere) != 2 or uses[0] not in above:
        return False
    call = above[uses[0]]
    if not isinstance(call, ast.Call) or call.func is not uses[0]:
        return False
    statement = above[call]
    simple = isinstance(statement, ast.Expr) or (
        isinstance(statement, ast.Assign) and len(statement.targets) == 1
    )
    around = _scopes(statement, above)
    if not simple or function in around or is_dynamic(function):
        return False
    arguments = _arguments(function, call)
    if arguments is None or (local_names(around[0]) if around else set()) & _free(function):
        return False
    if any(isinstance(above_, ast.ClassDef) for above_ in _chain(statement, above)) and not around:
        return False
    _put(trees, module, function, statement, arguments, above)
    return True


def _chain(node: ast.AST, above: dict[ast.AST, ast.AST]) -> list[ast.AST]:
    found = []
    while node in above:
        node = above[node]
        found.append(node)
    return found


def _arguments(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    names = [argument.arg for argument in function.args.args]
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    made = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        made[keyword.arg] = keyword.value
    return made if made.keys() == set(parameters(function)) else None


def _free(function: ast.FunctionDef) -> set[str]:
    return loads(*function.body) - local_names(function) - BUILTINS


def _put(
    trees: Trees,
    module: ast.Module,
    function: ast.FunctionDef,
    statement: ast.Expr | ast.Assign,
    arguments: dict[str, ast.expr],
    above: dict[ast.AST, ast.AST],
) -> None:
    taken = every_name(trees)
    new = {}
    for name in sorted(local_names(function)):
        made = f"{name}_in"
        while made in taken:
            made += "n"
        new[name] = made
        taken.add(made)
    body = copy.deepcopy(function.body)
    for each in body:
        for node in ast.walk(each):
            if isinstance(node, ast.Name) and node.id in new:
                node.id = new[node.id]
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name in new:
                node.name = new[node.name]
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    value: ast.expr = ast.Constant(None)
    if body and isinstance(body[-1], ast.Return):
        last = body.pop()
        assert isinstance(last, ast.Return)
        value = last.value or value
    given = [
        ast.Assign([ast.Name(new[name], ast.Store())], argument)
        for name, argument in arguments.items()
    ]
    statement.value = value
    outer = above[statement]
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(outer, field, None)
        if isinstance(statements, list) and statement in statements:
            at = statements.index(statement)
            statements[at:at] = [*given, *body]
            break
    module.body.remove(function)


__all__ = ["extract", "functions", "inline", "wrap_main"]
