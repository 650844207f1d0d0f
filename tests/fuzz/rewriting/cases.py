"""``match`` for ``if``."""

from __future__ import annotations

import ast
from random import Random

from tests.fuzz.rewriting.names import loads
from tests.fuzz.trees import Trees


def as_cases(trees: Trees, random: Random) -> bool:
    """Tells the arms of an ``if`` by a pattern of what is compared with constants or classes."""
    found = []
    for module in trees.modules.values():
        for node in ast.walk(module):
            asked = _asked(node.test) if isinstance(node, ast.If) else None
            if asked is not None:
                found.append((node, asked))
    if not found:
        return False
    node, (subject, pattern, guard) = random.choice(found)
    assert isinstance(node, ast.If)
    cases = [ast.match_case(pattern, guard, node.body)]
    if node.orelse or random.random() < 0.5:
        cases.append(ast.match_case(ast.MatchAs(), None, node.orelse or [ast.Pass()]))
    made = ast.copy_location(ast.Match(subject, cases), node)
    _put(trees, node, made)
    return True


def _put(trees: Trees, node: ast.stmt, made: ast.stmt) -> None:
    for module in trees.modules.values():
        for owner in ast.walk(module):
            for _, value in ast.iter_fields(owner):
                if isinstance(value, list) and node in value:
                    value[value.index(node)] = made
                    return


Asked = tuple[ast.expr, ast.pattern, ast.expr | None]


def _asked(test: ast.expr) -> Asked | None:
    """The subject, the pattern and the guard that ask for the same; None if none are natural."""
    guard: ast.expr | None = None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test, *rest = test.values
        guard = rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest)
    if isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance":
        patterns = _classes(test.args[1]) if len(test.args) == 2 else None
        subject = test.args[0]
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        patterns = _constants(test.ops[0], test.comparators[0])
        subject = test.left
    else:
        return None
    if not patterns or isinstance(subject, ast.Constant) or "__name__" in loads(subject):
        return None
    return subject, patterns[0] if len(patterns) == 1 else ast.MatchOr(patterns), guard


def _classes(given: ast.expr) -> list[ast.pattern] | None:
    every = given.elts if isinstance(given, ast.Tuple) else [given]
    if all(isinstance(each, (ast.Name, ast.Attribute)) for each in every):
        return [ast.MatchClass(each, [], [], []) for each in every]
    return None


def _constants(asked: ast.cmpop, given: ast.expr) -> list[ast.pattern] | None:
    several = isinstance(asked, ast.In) and isinstance(given, (ast.Tuple, ast.List, ast.Set))
    every = given.elts if several and isinstance(given, (ast.Tuple, ast.List, ast.Set)) else [given]
    if not several and not isinstance(asked, (ast.Eq, ast.Is)):
        return None
    if not all(isinstance(each, ast.Constant) for each in every):
        return None
    return [_constant(each) for each in every if isinstance(each, ast.Constant)]


def _constant(given: ast.Constant) -> ast.pattern:
    single = given.value is None or isinstance(given.value, bool)
    return ast.MatchSingleton(given.value) if single else ast.MatchValue(given)
