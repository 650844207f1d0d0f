"""The same statements in other words."""

from __future__ import annotations

import ast
import copy
from itertools import pairwise
from random import Random

from tests.fuzz.rewriting.names import bound, elsewhere, fresh, loads, words
from tests.fuzz.trees import Statements, Trees, blocks, parents

_SIMPLE = (ast.Expr, ast.Assign, ast.Return)


def dead_code(trees: Trees, random: Random) -> bool:
    """Adds a statement that does nothing to the training."""
    _, module = random.choice(sorted(trees.modules.items()))
    places = [(o, s) for o, s in blocks(module) if not isinstance(o, (ast.Module, ast.ClassDef))]
    lines = ["pass", "print('here')", "unused = 0", "'''Says what this is.'''", "unused = [1, 2]"]
    lines += [
        "import logging\nlogging.getLogger(__name__).debug('here: %s', 1)",
        "assert 1 + 1 == 2",
    ]
    functions = ["def unused_helper(value):\n    return value * 2", "UNUSED = {'a': 1}"]
    functions += [
        "class Unused:\n    kind = 'none'\n\n    def told(self):\n        return self.kind"
    ]
    made = random.choice(lines if places and random.random() < 0.7 else functions)
    for name in ("unused_helper", "unused", "UNUSED", "Unused"):
        made = made.replace(name, fresh(trees, name)) if name in made else made
    new = ast.parse(made).body
    if made in functions or not places:
        module.body[_first(module) : _first(module)] = new
        return True
    owner, statements = random.choice(places)
    at = random.randint(1 if _has_docstring(owner) else 0, len(statements))
    statements[at:at] = new
    return True


def _first(module: ast.Module) -> int:
    """Behind the docstring and the imports."""
    kinds = (ast.Import, ast.ImportFrom)
    return max(
        (i + 1 for i, node in enumerate(module.body) if isinstance(node, kinds)), default=0
    ) or (1 if _has_docstring(module) else 0)


def _has_docstring(owner: ast.AST) -> bool:
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(owner, kinds) and ast.get_docstring(owner) is not None


def temporary(trees: Trees, random: Random) -> bool:
    """Keeps the value of the first argument of a call, or of what is returned, in a variable."""
    found: list[tuple[Statements, ast.stmt, ast.expr, str]] = []
    for module in trees.modules.values():
        for owner, statements in blocks(module):
            if isinstance(owner, ast.ClassDef):
                continue
            for statement in statements:
                found += [(statements, statement, *place) for place in _first_evaluated(statement)]
    if not found:
        return False
    statements, statement, call, field = random.choice(found)
    name = fresh(trees, words(_get(call, field)))
    value = _get(call, field)
    stands = ast.Name(name, ast.Load())
    if hasattr(value, "origin"):
        stands.origin = value.origin  # type: ignore[attr-defined]  # see Trees
    _set(call, field, stands)
    at = statements.index(statement)
    statements.insert(at, ast.Assign([ast.Name(name, ast.Store())], value))
    return True


def _first_evaluated(statement: ast.stmt) -> list[tuple[ast.expr, str]]:
    """Expressions that are evaluated before anything else in the statement that has an effect."""
    if isinstance(statement, ast.With) and len(statement.items) == 1:
        return [(statement.items[0], "context_expr")]  # type: ignore[list-item]  # has the field
    if isinstance(statement, ast.For):
        return [(statement, "iter")]  # type: ignore[list-item]  # has the field
    if not isinstance(statement, _SIMPLE) or statement.value is None:
        return []
    found: list[tuple[ast.expr, str]] = []
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
        found.append((statement, "value"))  # type: ignore[arg-type]  # has the field
    current: ast.expr = statement.value
    while isinstance(current, ast.Call):
        if isinstance(current.func, ast.Attribute) and isinstance(current.func.value, ast.Call):
            if ast.unparse(current.func.value.func) == "super":
                break  # nobody gives it a name
            found.append((current.func, "value"))
            current = current.func.value
            continue
        if not _is_dotted(current.func) or not current.args:
            break
        if isinstance(current.args[0], (ast.Starred, ast.Constant, ast.GeneratorExp)):
            break
        if isinstance(current.func, ast.Name) and current.func.id in (
            "super",
            "isinstance",
            "print",
        ):
            break
        found.append((current, "args"))
        current = current.args[0]
    return found


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _get(node: ast.AST, field: str) -> ast.expr:
    found = getattr(node, field)
    return found[0] if isinstance(found, list) else found  # type: ignore[no-any-return]  # a field


def _set(node: ast.AST, field: str, value: ast.expr) -> None:
    if isinstance(getattr(node, field), list):
        getattr(node, field)[0] = value
    else:
        setattr(node, field, value)


def swap_arms(trees: Trees, random: Random) -> bool:
    """Asks the opposite, and gives the opposite answer."""
    found = [
        node
        for module in trees.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.If) and not _is_elif_chain(node) and not _is_main(node)
    ]
    if not found:
        return False
    node = random.choice(found)
    node.test = _negated(node.test)
    node.body, node.orelse = node.orelse or [ast.Pass()], node.body
    return True


def _is_main(node: ast.If) -> bool:
    return "__name__" in loads(node.test) or "TYPE_CHECKING" in loads(node.test)


def _is_elif_chain(node: ast.If) -> bool:
    return len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    opposites: dict[type[ast.cmpop], ast.cmpop] = {ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq()}
    opposites |= {ast.Is: ast.IsNot(), ast.IsNot: ast.Is()}
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in opposites:
        made = ast.Compare(test.left, [opposites[type(test.ops[0])]], test.comparators)
        return ast.copy_location(made, test)
    return ast.UnaryOp(ast.Not(), test)


def swap_sides(trees: Trees, random: Random) -> bool:
    """``0 == rank`` for ``rank == 0``."""
    found = [
        node
        for module in trees.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        and isinstance(node.comparators[0], ast.Constant)
    ]
    if not found:
        return False
    node = random.choice(found)
    node.left, node.comparators = node.comparators[0], [node.left]
    return True


def leave_early(trees: Trees, random: Random) -> bool:
    """``if not test: return`` before the rest, for a function that ends with ``if test: rest``."""
    found = [
        node
        for module in trees.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
        and isinstance(node.body[-1], ast.If)
        and not node.body[-1].orelse
        and not _is_main(node.body[-1])
    ]
    if not found:
        return False
    function = random.choice(found)
    last = function.body.pop()
    assert isinstance(last, ast.If)
    function.body += [ast.If(_negated(last.test), [ast.Return(None)], []), *last.body]
    return True


def ternary(trees: Trees, random: Random) -> bool:
    """An if statement for ``x = a if test else b``."""
    found = [
        (statements, node)
        for module in trees.modules.values()
        for owner, statements in blocks(module)
        for node in statements
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.IfExp)
        and isinstance(node.targets[0], ast.Name)
    ]
    if not found:
        return False
    statements, node = random.choice(found)
    value = node.value
    assert isinstance(value, ast.IfExp)
    arms = [ast.Assign(copy.deepcopy(node.targets), each) for each in (value.body, value.orelse)]
    statements[statements.index(node)] = ast.If(value.test, [arms[0]], [arms[1]])
    return True


def together(trees: Trees, random: Random) -> bool:
    """One assignment of a tuple for two assignments that follow each other."""
    found = []
    for module in trees.modules.values():
        for owner, statements in blocks(module):
            for first, second in pairwise(statements):
                if isinstance(owner, ast.ClassDef) or not (_is_plain(first) and _is_plain(second)):
                    continue
                assert isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
                if not bound([first]) & loads(second.value) and bound([first]) != bound([second]):
                    found.append((statements, first, second))
    if not found:
        return False
    statements, first, second = random.choice(found)
    targets = ast.Tuple([first.targets[0], second.targets[0]], ast.Store())
    made = ast.Assign([targets], ast.Tuple([first.value, second.value], ast.Load()))
    at = statements.index(first)
    statements[at : at + 2] = [made]
    return True


def _is_plain(node: ast.stmt) -> bool:
    plain = isinstance(node, ast.Assign) and len(node.targets) == 1
    return plain and isinstance(node.targets[0], ast.Name) and not loads(node) & {"__name__"}  # type: ignore[attr-defined]  # an assignment


def count_along(trees: Trees, random: Random) -> bool:
    """Counts the turns of a loop, or takes its elements from a list of them."""
    found = [
        node
        for module in trees.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
    ]
    if not found:
        return False
    node = random.choice(found)
    if random.random() < 0.5:
        node.target = ast.Tuple(
            [ast.Name(fresh(trees, "_turn"), ast.Store()), node.target], ast.Store()
        )
        node.iter = ast.Call(ast.Name("enumerate", ast.Load()), [node.iter], [])
    elif _is_dotted(node.iter):
        node.iter = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
    else:
        return False
    return True


def enclose(trees: Trees, random: Random) -> bool:
    """Puts a statement into a context or a ``try`` that does nothing."""
    found = [
        (statements, node)
        for module in trees.modules.values()
        for owner, statements in blocks(module)
        if not isinstance(owner, ast.ClassDef)
        for node in statements
        if isinstance(node, (ast.Expr, ast.Assign, ast.For, ast.While))
        and not isinstance(getattr(node, "value", None), ast.Constant)
        and not elsewhere(node)
    ]
    if not found:
        return False
    statements, node = random.choice(found)
    at = statements.index(node)
    if random.random() < 0.5:
        statements[at] = ast.Try([node], [], [], [ast.Pass()])
    else:
        name = fresh(trees, "nullcontext")
        imported = ast.ImportFrom("contextlib", [ast.alias("nullcontext", name)], 0)
        context = ast.Call(ast.Name(name, ast.Load()), [], [])
        statements[at : at + 1] = [imported, ast.With([ast.withitem(context)], [node], lineno=0)]
    return True


def format_text(trees: Trees, random: Random) -> bool:
    """``"{}".format(x)`` for an f-string, and an f-string for a plain one."""
    found = []
    for module in trees.modules.values():
        above = parents(module)
        for node in ast.walk(module):
            plain = isinstance(node, ast.JoinedStr) and not isinstance(
                above[node], (ast.FormattedValue, ast.JoinedStr)
            )
            if plain and all(_is_simple(part) for part in node.values):  # type: ignore[attr-defined]  # an f-string
                found.append((node, above[node]))
    if not found:
        return False
    node, owner = random.choice(found)
    assert isinstance(node, ast.JoinedStr)
    parts = [
        "{}" if isinstance(part, ast.FormattedValue) else _escaped(part) for part in node.values
    ]
    values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    template = ast.Attribute(ast.Constant("".join(parts)), "format", ast.Load())
    made = ast.Call(template, values, [])
    for inner in ast.walk(made):  # in an f-string nothing has a place of its own
        inner.origin = getattr(node, "origin", None)  # type: ignore[attr-defined]  # see Trees
    _replaced(owner, node, made)
    return True


def _is_simple(part: ast.expr) -> bool:
    if isinstance(part, ast.FormattedValue):
        return part.conversion == -1 and part.format_spec is None
    return isinstance(part, ast.Constant)


def _escaped(part: ast.expr) -> str:
    assert isinstance(part, ast.Constant)
    return str(part.value).replace("{", "{{").replace("}", "}}")


def _replaced(owner: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(owner):
        if value is old:
            setattr(owner, field, new)
        elif isinstance(value, list) and old in value:
            value[value.index(old)] = new


def no_grad(trees: Trees, random: Random) -> bool:
    """``with torch.no_grad():`` in a function for the decorator of it."""
    found = [
        (node, decorator)
        for module in trees.modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in ("no_grad", "inference_mode")
    ]
    if not found:
        return False
    node, decorator = random.choice(found)
    if len(node.decorator_list) > 1 or any(isinstance(n, ast.Yield) for n in ast.walk(node)):
        return False
    node.decorator_list = []
    node.body = [ast.With([ast.withitem(decorator)], node.body, lineno=0)]
    return True
